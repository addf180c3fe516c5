/* Two libraries of one layout whose frames differ by ROOM, for sites.c.  They need no other library. */
#include <stddef.h>

typedef int take_fn(unsigned long long *pointer, size_t bytes);

int swap_take(take_fn *take, unsigned long long *pointer, size_t bytes);
__attribute__((visibility("default"))) int swap_take(take_fn *take, unsigned long long *pointer, size_t bytes) {
    volatile char room[ROOM];
    room[0] = 0;
    int result = take(pointer, bytes);
    return result + room[0];
}
