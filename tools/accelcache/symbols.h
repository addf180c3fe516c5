/* Names of code: what an ELF file's symbol tables say lies at an offset. */
#ifndef CMD_SYMBOLS_H
#define CMD_SYMBOLS_H

#include <stdint.h>

/* The function at the offset (an address of the file, as in its symbol tables), malloc'd, demangled where
 * it is a C++ name; NULL: the file is not here, was stripped, has none there, or has another build ID than
 * `id` (NULL: not known), which is said once of a file.  Files stay open. */
char *cmd_symbol_at(const char *path, const char *id, uint64_t offset);

#endif
