/* A program without CUDA, linked statically: the loader ignores preloads for it. */
#include <stdio.h>

int main(void) {
    puts("static and unharmed");
    return 0;
}
