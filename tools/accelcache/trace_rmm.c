#include "trace.h"
bool cmd_trace_read_rmm(cmd_trace_reading_t *r, const char *d, size_t n, char **e){(void)r;(void)d;(void)n;(void)e;return 0;}
bool cmd_trace_read_torch(cmd_trace_reading_t *r, const char *d, size_t n, char **e){(void)r;(void)d;(void)n;(void)e;return 0;}
