/* Where lies what every process touches that the library is loaded into, CUDA or not.
 *
 * Most of these processes are shells, compilers and small tools, and what they pay for is pages:
 * each one first touched costs about a microsecond.  Code marked AC_START lies together at the
 * front of .text.  Data marked AC_START_DATA lies in .data instead of among the large tables of
 * .bss; all of it fits the one page that the loader writes to anyway.  So do single words that
 * every start of CUDA looks at, each of which would be a page otherwise. */
#ifndef AC_START_H
#define AC_START_H

#define AC_START      __attribute__((section(".text.startup.accelcache")))
#define AC_START_DATA __attribute__((section(".data.accelcache")))

#endif
