/* What all probes share: how one is declared, what it was told, how it says what it saw. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* One probe: its name, which is a word of the table in docs/isolation.md, and what it does. */
struct probe {
    const char *name;
    void (*run)(void);
};

extern const struct probe network_probes[], file_probes[], process_probes[], kernel_probes[], escape_probes[],
    shared_probes[];

/* Is attacked: see hold.c. */
int hold(void);
/* Fills the queues of connections: see flood.c. */
int flood(void);

/* The value of `key=value` among the arguments; NULL if it was not given. */
const char *given(const char *key);
/* The same as a number; zero if it was not given. */
long given_number(const char *key);

/* Something worked. What it was worth is for the judge to say. */
void done(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Nothing worked; `error` says why, zero that there was nothing to work on. */
void refused(int error);
/* Says the one or the other by what a system call returned. */
void outcome(long result, const char *what);
/* Shows the first bytes of what was read. */
void shown(const char *what, const char *bytes, long length);

/* Opens, and says so or why not. */
void try_open(const char *path, int flags);
/* Writes what a file holds back to it: harmless where it works. */
void try_rewrite(const char *path);
