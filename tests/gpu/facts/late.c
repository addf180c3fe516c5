/* Opened after the driver, and so taken down after it: the destructor calls the function that
 * is named here by then. */
#include <stddef.h>

__attribute__((visibility("default"))) extern void (*gpu_late_hook)(void);

void (*gpu_late_hook)(void) = NULL;

__attribute__((destructor)) static void end(void) {
    if (gpu_late_hook)
        gpu_late_hook();
}
