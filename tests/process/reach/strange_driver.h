/* Functions of strange_driver.c that no table knows. */
#ifndef STRANGE_DRIVER_H
#define STRANGE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double at[3];
} strange_value_t;

/* More arguments of each kind than registers hold; *noticed: what is_noticed said at first. */
typedef double strange_arguments_fn(bool *noticed, bool (*is_noticed)(void), int a, uint64_t b,
                                    const double *c, int d, int e, uint64_t f, double r, double s,
                                    float t, double u, double v, double w, double x, double y,
                                    double z, strange_value_t by_value);
typedef double strange_doubles_fn(int count, ...);

#endif
