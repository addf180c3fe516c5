/* Common parts of `doctor`: findings, and the checks that make them. */
#ifndef CMD_DOCTOR_H
#define CMD_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>

#include "read/document.h"

typedef enum {
    CMD_FINDING_OK,
    CMD_FINDING_NOTE,   /* worth knowing */
    CMD_FINDING_PROBLEM /* keeps accelcache from working: exit status 1 */
} cmd_level_t;

typedef struct cmd_findings cmd_findings_t;
void cmd_finding(cmd_findings_t *findings, cmd_level_t level, const char *topic,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The driver, asked by a child of ours within ten seconds; `folder` (may be NULL) is searched
 * for libcuda.so.1 first. */
void cmd_doctor_driver(cmd_findings_t *findings, const char *folder);
/* That child: prints what it finds, a "key value" a line. */
int cmd_doctor_probe(void);

/* A running process: the library, the CUDA libraries, the live page, the dump signal, its
 * figures. */
void cmd_doctor_process(cmd_findings_t *findings, int pid);

/* Findings from the figures of a program: whether it needs free_sync, counters that should be 0. */
void cmd_doctor_figures(cmd_findings_t *findings, const json_t *document);
/* Findings from the document in a file. */
void cmd_doctor_dump(cmd_findings_t *findings, const char *path);

/* A variable of the program that has the name of a function of ours.  Frees `where`. */
void cmd_doctor_variable(cmd_findings_t *findings, char *where);

/* Preloaded libraries, by LD_PRELOAD, that have functions with names of ours: their order. */
void cmd_doctor_preloads(cmd_findings_t *findings, const char *preload);

/* Memory that a program shares with other processes, and its cost. */
void cmd_doctor_shares(cmd_findings_t *findings, const cmd_figures_t *figures);
/* Which of its blocks a process that runs shares now. */
void cmd_doctor_exports(cmd_findings_t *findings, const ac_live_name_t *name);

#endif
