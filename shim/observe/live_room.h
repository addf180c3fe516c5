/* How much room the live page has, for live_page.S and for C. */
#ifndef AC_LIVE_ROOM_H
#define AC_LIVE_ROOM_H

#define AC_LIVE_ROOM 0x200000 /* bytes of address space; what is not used costs nothing */

/* A file can be mapped over the page only where it fills whole pages of the machine by itself.
 * Larger alignments than the linker's page size are not kept by older dynamic linkers. */
#if defined(__aarch64__) || defined(__powerpc64__)
#define AC_LIVE_ALIGNMENT 65536
#else
#define AC_LIVE_ALIGNMENT 4096
#endif

#endif
