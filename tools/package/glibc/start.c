/* The start of programs that run with glibc before 2.34.  There, a program contains the function that
 * calls its constructors.  The startup file of later versions leaves this to the C library. */
#include <stddef.h>

typedef void constructor_fn(int, char **, char **);
typedef int main_fn(int, char **, char **);

extern constructor_fn *__init_array_start[] __attribute__((visibility("hidden")));
extern constructor_fn *__init_array_end[] __attribute__((visibility("hidden")));
void _init(void);

int old_start(main_fn *main, int argc, char **argv, constructor_fn *constructors,
              void (*destructors)(void), void (*loader_end)(void), void *stack_end)
    __attribute__((visibility("default")));
__asm__(".symver old_start," START);

int __libc_start_main(main_fn *main, int argc, char **argv, constructor_fn *constructors,
                      void (*destructors)(void), void (*loader_end)(void), void *stack_end);

static void construct(int argc, char **argv, char **environment) {
    _init();
    for (constructor_fn **each = __init_array_start; each < __init_array_end; each++)
        (*each)(argc, argv, environment);
}

/* The startup file calls this, since 2.34 without constructors of its own.  The dynamic linker runs
 * destructors. */
int __libc_start_main(main_fn *main, int argc, char **argv, constructor_fn *constructors,
                      void (*destructors)(void), void (*loader_end)(void), void *stack_end) {
    return old_start(main, argc, argv, constructors ? constructors : construct, destructors,
                     loader_end, stack_end);
}
