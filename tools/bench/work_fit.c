/* The number of pairs in a pass of a given time; see work.h. */
#include "work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Guesses by doubling, then corrects by proportion.  It uses the time that passes report: this time leaves out the
 * start of threads.  If other programs use the cores, a pass takes far longer than it reports; a sixteenth of the
 * target is then enough.  The few pairs of a slow start would measure only the clock.  It gives up if a shorter
 * pass takes seconds.  A pass looks too long if its thread had to wait for a core, so the shortest of a few
 * passes decides. */
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
