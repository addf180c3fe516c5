/* The demonstration's kernels: as PTX for a GPU, as host functions for the simulated device. */
#ifndef DEMO_KERNELS_H
#define DEMO_KERNELS_H

/* saxpy(n, a, x, y, out)   out[i] = a * x[i] + y[i].
 * product(n, x, y, out)    out[i] = x[i] * y[i].
 * stripes(n, x, out)       out[t] = sum of x[t], x[t + threads], ...; one value per thread.
 * The driver compiles the text for the GPU of the machine. */
extern const char demo_ptx[];

/* Sets the function that translates device addresses for the host functions.  The simulated device
 * needs it before the first launch; a GPU never does. */
typedef void *demo_host_fn(unsigned long long address);
void demo_kernels_on_host(demo_host_fn *host_address);

#endif
