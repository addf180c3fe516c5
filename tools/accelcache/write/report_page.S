/* The page of `accelcache report` as a string. */
    .section .rodata
    .globl cmd_report_page
    .hidden cmd_report_page
    .type cmd_report_page, %object
cmd_report_page:
    .incbin AC_REPORT_PAGE
    .byte 0
    .size cmd_report_page, . - cmd_report_page
    .section .note.GNU-stack, "", %progbits
