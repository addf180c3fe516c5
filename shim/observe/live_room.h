/* Size and alignment of the live page's address range, for live_page.S and for C. */
#ifndef AC_LIVE_ROOM_H
#define AC_LIVE_ROOM_H

#define AC_LIVE_ROOM 0x200000 /* bytes of address space; unused ones take no memory */

/* A file can be mapped over the live page only if that fills whole pages of the machine.
 * Older dynamic linkers do not keep alignments above the linker's page size. */
#if defined(__aarch64__) || defined(__powerpc64__)
#define AC_LIVE_ALIGNMENT 65536
#else
#define AC_LIVE_ALIGNMENT 4096
#endif

#endif
