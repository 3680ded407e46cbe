/* One decode step of HILOS with the best alpha, point by point: what costmodel/systems/hilos.py, offload.py, writeback.py
   and solvers/balance.py compute, for a dense model whose weights lie in DRAM and for delayed writeback. */
#include <math.h>
#include <stddef.h>

typedef struct {
    double flops, hbm, dram, host_memory, gpu_link, uplink_derate, p2p_read, flash_write, kernel, commit, dma, page, capacity;
    double layers, layer_weights, head_weights, weights, linear_flops, head_flops;
    double hidden, kv_heads, head_size, group, width, interval, output;
} numbers;

/* Three lines above a base: csd.flash, csd.kernel, the way of X to the GPU. */
static inline double highest(const double at0[4], const double rise[4], double x) {
    double top = at0[1] + x * rise[1];
    for (int i = 2; i < 4; i++) top = fmax(top, at0[i] + x * rise[i]);
    return at0[0] + x * rise[0] + top;
}

/* Weights stream from DRAM to the GPU while it multiplies. */
static inline double streamed(const numbers *p, double weights, double flops) {
    return fmax(fmax(weights / p->gpu_link, weights / p->dram), fmax(weights / p->hbm, flops / p->flops));
}

static inline double step(const numbers *p, double b, double prompt, double devices, double uplink_raw) {
    double n = p->output, s = prompt + n / 2, w = p->width, c = p->interval;
    double uplink = uplink_raw * p->uplink_derate, flash = devices * p->p2p_read;
    double link = fmin(p->gpu_link, uplink), heads = b * p->kv_heads;
    double kv1 = 2 * heads * p->head_size * w, x1 = p->hidden * b * w, kv = kv1 * s, x = x1 * s;
    double q = heads * p->group * p->head_size * w;

    double linear = streamed(p, p->layer_weights, b * p->linear_flops);
    double m = fmax(floor(p->page / (p->head_size * w)), 1), full = floor(c / m);
    double transfers = (m * full * (full + 1) / 2 + (c - m * full) * (full + 1)) / c;
    double stage = heads * transfers * p->dma + (c + 1) / 2 * heads * (p->head_size + p->group) * w / uplink;
    double kept = c * floor(n / c) / n, spilled = ceil(c / m) / c;
    double spill = p->commit / devices + kept * p->page / (devices * p->flash_write);

    double at0[4] = {linear + (q + kv1) / link + q / link + stage, kv / flash + 2 * heads * spilled * spill,
                     kv / (devices * p->kernel), 0};
    double at1[4] = {linear + x1 / link, x / flash + b * p->hidden / p->head_size * spilled * spill, 0,
                     fmax(x / link, 4 * s * heads * p->head_size * (p->hidden + p->group) / p->flops)};
    double rise[4];
    for (int i = 0; i < 4; i++) rise[i] = at1[i] - at0[i];

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
    for (int i = 1; i < 4; i++)
        for (int j = i + 1; j < 4; j++) {
            double apart = rise[i] - rise[j];
            double cross = apart != 0 ? (at0[j] - at0[i]) / apart : low;
            best = fmin(best, highest(at0, rise, fmin(fmax(cross, low), high)));
        }
    return p->layers * best + streamed(p, p->head_weights, b * p->head_flops);
}

void sweep(const numbers *p, const double *batch, size_t nb, const double *context, size_t nc, const double *devices,
           size_t nd, const double *uplink, size_t nu, double *seconds) {
    for (size_t i = 0; i < nb; i++)
        for (size_t j = 0; j < nc; j++)
            for (size_t k = 0; k < nd; k++)
                for (size_t l = 0; l < nu; l++) *seconds++ = step(p, batch[i], context[j], devices[k], uplink[l]);
}
