"""Speed, measured as ratios within one run; `make bench` runs every `bench_*` module here."""
