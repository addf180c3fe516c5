/* The address range of the live page, over which a shared file is mapped: see live.c.
 *
 * It has its own section after all other data.  In .bss its alignment would apply to the whole of .bss.  The
 * small variables there would then begin on a page of their own, at a cost for each process with the library. */
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
