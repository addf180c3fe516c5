/* Configuration strings, as ACCEL_ALLOC_CONF has them. */
#ifndef CMD_CONF_H
#define CMD_CONF_H

/* Returns a copy of `conf` (may be NULL) with `key` set to `value`; malloc'd. */
char *cmd_conf_set(const char *conf, const char *key, const char *value);
/* Returns a copy of `conf` with every key of `changes`, a valid string, set to its value there; malloc'd. */
char *cmd_conf_merge(const char *conf, const char *changes);

#endif
