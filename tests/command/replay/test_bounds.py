"""accelcache replay: each trace needs no more memory than the recorded bounds plus a margin. Ratios of
bytes are deterministic, but the ratio of a single seed can vary by a tenth by chance."""

import base
import frame

MARGIN = 0.01
SEEDS = range(1, 4)
WAYS = {"native": "", "pages": "expandable_segments:true"}
OPERATIONS = {"grow": "1000", "rmm": "20000"}
# Bounds for the mean over the seeds: memory from the device at its peak, relative to the program's memory,
# in the first and second replay; the least capacity that completes; the first two again with 50 operations
# in progress at each free.
BOUNDS = {
    ("islands", "native"): (1.171, 1.175, 1.160, 1.217, 1.217),
    ("islands", "pages"): (1.045, 1.045, 1.044, 1.198, 1.199),
    ("grow", "native"): (1.004, 1.014, 1.003, 1.002, 1.176),
    ("grow", "pages"): (1.005, 1.005, 1.005, 1.006, 1.196),
    ("rmm", "native"): (1.446, 1.453, 1.428, 1.444, 1.461),
    ("rmm", "pages"): (1.270, 1.270, 1.012, 1.296, 1.300),
    ("lora", "native"): (1.108, 1.108, 1.090, 1.203, 1.211),
    ("lora", "pages"): (1.010, 1.017, 1.010, 1.200, 1.200),
    ("graph", "native"): (1.061, 1.061, 1.043, 1.201, 1.199),
    ("graph", "pages"): (1.010, 1.008, 1.009, 1.176, 1.176),
    ("varlen", "native"): (1.062, 1.062, 1.098, 1.193, 1.220),
    ("varlen", "pages"): (1.009, 1.009, 1.009, 1.193, 1.199),
    ("serving", "native"): (1.039, 1.039, 1.019, 1.108, 1.124),
    ("serving", "pages"): (1.006, 1.006, 1.006, 1.122, 1.133),
    ("amr", "native"): (1.052, 1.062, 1.024, 1.160, 1.185),
    ("amr", "pages"): (1.050, 1.056, 1.012, 1.158, 1.161),
    ("fixed", "native"): (1.028, 1.057, 1.033, 1.198, 1.200),
    ("fixed", "pages"): (1.004, 1.004, 1.004, 1.197, 1.200),
}
# Bounds for the mean over the seeds in the first and second replay, with the streams of the trace.
STREAM_BOUNDS = {
    ("islands", "native"): (1.186, 1.183),
    ("islands", "pages"): (1.127, 1.132),
    ("grow", "native"): (1.004, 1.007),
    ("grow", "pages"): (1.006, 1.080),
    ("rmm", "native"): (1.474, 1.453),
    ("rmm", "pages"): (1.250, 1.263),
    ("fixed", "native"): (1.041, 1.041),
    ("varlen", "native"): (1.071, 1.062),
}


class Bounds(frame.TraceTest):
    def paths(self, kind):
        for seed in SEEDS:
            yield self.generate(kind, "--seed", str(seed), "--ops", OPERATIONS.get(kind, "60000"))

    def means(self, kind, conf):
        rows = []
        for path in self.paths(kind):
            alone = self.replay(path, "--conf", conf, "--min-capacity")
            beside = self.replay(path, "--conf", conf, "--pending", "50")
            rows.append([alone["ratio"], alone["ratio_second"], alone["min_capacity_ratio"],
                         beside["ratio"], beside["ratio_second"]])
        return [sum(column) / len(rows) for column in zip(*rows)]

    def stream_means(self, kind, conf):
        rows = [self.replay(path, "--conf", conf, "--streams", "real") for path in self.paths(kind)]
        return [sum(row[key] for row in rows) / len(rows) for key in ("ratio", "ratio_second")]

    def check(self, table, means_of):
        for (kind, way), bounds in table.items():
            with self.subTest((kind, way)):
                means = means_of(kind, WAYS[way])
                self.assertTrue(all(mean <= bound + MARGIN for mean, bound in zip(means, bounds)),
                                [f"{mean:.3f}" for mean in means])

    def test_no_more_than_before(self):
        self.check(BOUNDS, self.means)

    def test_no_more_in_stream_order(self):
        self.check(STREAM_BOUNDS, self.stream_means)


if __name__ == "__main__":
    base.main()
