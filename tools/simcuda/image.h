/* Contents of a module image: kernels with their parameters, and variables, read from PTX text.
 * Other images are not parsed: every name is assumed to exist in them. */
#ifndef SIM_IMAGE_H
#define SIM_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *name; /* interned, lives for ever */
    unsigned short *param_bytes, *param_offset;
    unsigned param_count;
} sim_image_kernel_t;

typedef struct {
    const char *name;
    size_t bytes;
    bool managed;
} sim_image_variable_t;

typedef struct {
    unsigned refs;
    bool known;   /* was PTX text */
    bool refused; /* the driver would not take it */
    sim_image_kernel_t *kernels;
    unsigned kernel_count;
    sim_image_variable_t *variables;
    unsigned variable_count;
} sim_image_t;

/* Limit for all parameters of a kernel together, since CUDA 12.1. */
enum { SIM_PARAM_BYTES = 32764 };

/* Size of variables of images that are not PTX text. */
enum { SIM_UNKNOWN_VARIABLE_BYTES = 64 << 10 };

sim_image_t *sim_image_parse(const void *data); /* NULL without memory */
sim_image_t *sim_image_ref(sim_image_t *image);
void sim_image_unref(sim_image_t *image);
const sim_image_kernel_t *sim_image_kernel(const sim_image_t *image, const char *name);
const sim_image_variable_t *sim_image_variable(const sim_image_t *image, const char *name);
const char *sim_intern(const char *name, size_t length); /* NULL without memory */

#endif
