/* Prints what the stand-in should export, one name per line. */
#include <stdio.h>

#define RT_FN(name, params)                             puts(#name);
#define RT_FN2(name, suffix, params)                    puts(#name), puts(#name "_" #suffix);
#define RT_QUERY(name, params, driver, args)            RT_FN(name, params)
#define RT_FORWARD(name, params, driver, args)          RT_FN(name, params)
#define RT_FORWARD2(name, suffix, params, driver, args) RT_FN2(name, suffix, params)

int main(void) {
    static const char *const others[] = {
        "cudaGetErrorName",
        "cudaGetErrorString",
        "__cudaRegisterFatBinary",
        "__cudaRegisterFatBinaryEnd",
        "__cudaUnregisterFatBinary",
        "__cudaInitModule",
        "__cudaRegisterFunction",
        "__cudaRegisterVar",
        "__cudaPushCallConfiguration",
        "__cudaPopCallConfiguration",
#if RT_MAJOR >= 12
        "__cudaGetKernel",
        "__cudaLaunchKernel",
        "__cudaLaunchKernel_ptsz",
#endif
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        puts(others[i]);
    }
#include "runtime.def"
    return 0;
}
