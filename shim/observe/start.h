/* Sections for code and data that every process with the library touches, with or without CUDA.
 *
 * Most of these processes are shells, compilers and small tools.  Their cost is page faults: the first
 * access to each page takes about a microsecond.  Code marked AC_START lies together at the front of
 * .text.  Data marked AC_START_DATA lies in .data instead of among the large tables of .bss.  All of it
 * fits the one page that the loader writes anyway.  The mark is also for single words that each start
 * of CUDA reads, because each of them would otherwise touch a page of its own. */
#ifndef AC_START_H
#define AC_START_H

#define AC_START      __attribute__((section(".text.startup.accelcache")))
#define AC_START_DATA __attribute__((section(".data.accelcache")))

#endif
