/* One decode step of HILOS with the best alpha, point by point: what costmodel/systems/hilos.py, x_cache.py, writeback.py
   and solvers/balance.py compute, for a dense model whose weights lie in DRAM and for delayed writeback. */
#include <math.h>
#include <stddef.h>

typedef struct {
    double flops, hbm, dram, host_memory, gpu_link, uplink_derate, p2p_read, flash_write, kernel, commit, dma, page, capacity;
    double layers, attention_weights, feed_forward_weights, head_weights, weights;
    double projection_flops, feed_forward_flops, head_flops;
    double hidden, kv_heads, head_size, group, width, interval, output;
} numbers;

/* The attention half: flash, kernel, the path of X to the GPU; spills; weights, and all that the GPU's link carries. */
enum { LINES = 6 };

static inline double highest(const double at0[LINES], const double rise[LINES], double x) {
    double top = at0[0] + x * rise[0];
    for (int i = 1; i < LINES; i++) top = fmax(top, at0[i] + x * rise[i]);
    return top;
}

/* Weights stream from DRAM to the GPU. */
static inline double loaded(const numbers *p, double weights) { return fmax(weights / p->gpu_link, weights / p->dram); }

/* The GPU multiplies them. */
static inline double multiplied(const numbers *p, double weights, double flops) {
    return fmax(weights / p->hbm, flops / p->flops);
}

static inline double step(const numbers *p, double b, double prompt, double devices, double uplink_raw) {
    double n = p->output, s = prompt + n / 2, w = p->width, c = p->interval;
    double uplink = uplink_raw * p->uplink_derate, flash = devices * p->p2p_read;
    double link = fmin(p->gpu_link, uplink), heads = b * p->kv_heads;
    double kv1 = 2 * heads * p->head_size * w, x1 = p->hidden * b * w, kv = kv1 * s, x = x1 * s;
    double q = heads * p->group * p->head_size * w;

    double projections = multiplied(p, p->attention_weights, b * p->projection_flops);
    double products = multiplied(p, p->feed_forward_weights, b * p->feed_forward_flops);
    double feed_forward = fmax(loaded(p, p->attention_weights), products);
    double m = fmax(floor(p->page / (p->head_size * w)), 1), full = floor(c / m);
    double transfers = (m * full * (full + 1) / 2 + (c - m * full) * (full + 1)) / c;
    double stage = 2 * heads * transfers * p->dma + (c + 1) / 2 * heads * (p->head_size + p->group) * w / uplink;
    double kept = c * floor(n / c) / n, spilled = ceil(c / m) / c;
    double program = kept * p->page / (devices * p->flash_write), spill = p->commit / devices + program;
    double rows0 = 2 * heads * spilled, rows1 = b * p->hidden / p->head_size * spilled;

    /* X becomes K and V, which attention then reads */
    double rebuild_flops = 4 * s * heads * p->head_size * p->hidden, attention_flops = 4 * s * heads * p->head_size * p->group;
    double rebuilt = fmax(rebuild_flops / p->flops, (x + kv) / p->hbm), attended = fmax(attention_flops / p->flops, kv / p->hbm);
    double before0 = projections + (q + kv1) / link + q / link + stage, before1 = projections + x1 / link;
    double weights = loaded(p, p->feed_forward_weights), carried = p->feed_forward_weights / p->gpu_link;
    double at0[LINES] = {before0 + kv / flash + rows0 * program, before0 + kv / (devices * p->kernel),
                         before0, before0 + rows0 * spill, weights, carried + q / p->gpu_link};
    double at1[LINES] = {before1 + x / flash + rows1 * program, before1,
                         before1 + fmax(x / link, rebuilt + attended),
                         before1 + rows1 * spill, weights, carried + x / p->gpu_link};
    double rise[LINES];
    for (int i = 0; i < LINES; i++) rise[i] = at1[i] - at0[i];

    double low = 0, high = 1;
    double need0[2] = {p->weights + p->layers * c * kv1, p->layers * (prompt + n) * kv1};
    double need1[2] = {p->weights + p->layers * c * x1, p->layers * (prompt + n) * x1};
    double room[2] = {p->host_memory, devices * p->capacity};
    for (int i = 0; i < 2; i++) {
        double more = need1[i] - need0[i], edge = (room[i] - need0[i]) / more;
        high = more > 0 ? fmin(high, edge) : high;
        low = more < 0 ? fmax(low, edge) : low;
    }
    if (low > high) { low = 0; high = 1; }

    /* the least lies at an end or where two lines cross */
    double best = fmin(highest(at0, rise, low), highest(at0, rise, high));
    for (int i = 0; i < LINES; i++)
        for (int j = i + 1; j < LINES; j++) {
            double apart = rise[i] - rise[j];
            double cross = apart != 0 ? (at0[j] - at0[i]) / apart : low;
            best = fmin(best, highest(at0, rise, fmin(fmax(cross, low), high)));
        }
    double head = fmax(loaded(p, p->head_weights), multiplied(p, p->head_weights, b * p->head_flops));
    return p->layers * (best + feed_forward) + head;
}

void sweep(const numbers *p, const double *batch, size_t nb, const double *context, size_t nc, const double *devices,
           size_t nd, const double *uplink, size_t nu, double *seconds) {
    for (size_t i = 0; i < nb; i++)
        for (size_t j = 0; j < nc; j++)
            for (size_t k = 0; k < nd; k++)
                for (size_t l = 0; l < nu; l++) *seconds++ = step(p, batch[i], context[j], devices[k], uplink[l]);
}
