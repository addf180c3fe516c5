/* The address range of the live page, which a shared file is mapped over: see live.c.
 *
 * In a section of its own, behind all other data: in .bss its alignment would be that of .bss as a
 * whole, and the small variables there would begin on a page by themselves, which every process
 * that the library is loaded into would pay for. */
#include "observe/live_room.h"

    .section .live_page, "aw", %nobits
    .balign AC_LIVE_ALIGNMENT
    .globl ac_live_storage
    .hidden ac_live_storage
    .type ac_live_storage, %object
    .size ac_live_storage, AC_LIVE_ROOM
ac_live_storage:
    .zero AC_LIVE_ROOM

    .section .note.GNU-stack, "", %progbits
