/* How many pairs a pass of a given time has; see work.h. */
#include "work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A first guess by doubling, corrected by proportion.  By what passes report: starting threads is
 * no part of them, and would make short ones of them.  Where others have the cores a pass takes far longer than
 * it reports: a sixteenth is enough then, since the few pairs that a slow start leaves would be a figure of the
 * clock.  Passes that take seconds, and are shorter than that, end it.  A pass in which its thread had to
 * wait for a core looks longer than it is: what ends it is the shortest of a few. */
long work_fit(const work_t *w, work_pass_fn *pass) {
    enum { TRIES = 3 };
    const double most = 5e9;
    double target = (double)w->us * 1000, patience = 1e8 + 8 * target;
    for (long pairs = 16;; pairs *= 2) {
        double wall = work_now(), took = pass(w, pairs);
        wall = work_now() - wall;
        double enough = wall >= patience ? target / 16 : target / 4;
        for (int i = 1; i < TRIES && took >= enough; i++)
            took = fmin(took, pass(w, pairs));
        if (took >= target || (took >= target / 16 && wall >= patience))
            return pairs;
        if (took >= target / 4)
            return (long)((double)pairs * target / took) + 1;
        if (wall >= most) {
            fflush(stdout);
            fprintf(stderr,
                    "bench_" PEER_NAME ": the machine is too busy: %ld pairs were %.3f ms of work and took %.1f s; "
                    "end what else runs, and start again\n",
                    pairs, took / 1e6, wall / 1e9);
            exit(1);
        }
    }
}
