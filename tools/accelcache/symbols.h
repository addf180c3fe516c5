/* Names of code: what an ELF file's symbol tables say lies at an offset. */
#ifndef CMD_SYMBOLS_H
#define CMD_SYMBOLS_H

#include <stdint.h>

/* The function at the offset (an address of the file, as in its symbol tables), malloc'd, demangled where
 * it is a C++ name; NULL: the file is not here, was stripped, or has none there.  Files stay open. */
char *cmd_symbol_at(const char *path, uint64_t offset);

#endif
