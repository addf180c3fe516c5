/* A library that is opened after the driver, so that its destructor runs after the driver's.  The
 * destructor calls gpu_late_hook. */
#include <stddef.h>

__attribute__((visibility("default"))) extern void (*gpu_late_hook)(void);

void (*gpu_late_hook)(void) = NULL;

__attribute__((destructor)) static void end(void) {
    if (gpu_late_hook)
        gpu_late_hook();
}
