/* Runs a program to which a system call is refused, and to all that it starts, as a stricter host would.
 *
 *   deny NAME -- PROGRAM ARGUMENTS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    int number;
    /* Refused only if the first argument is not zero. */
    int with_first;
} calls[] = {
    {"seccomp", SYS_seccomp, 0},
    {"landlock", 444, 0},
    /* The kernel says which Landlock it has, and then makes no ruleset. */
    {"landlock-late", 444, 1},
    {"landlock-restrict", 446, 0},
    {"unshare", SYS_unshare, 0},
    {"mount", SYS_mount, 0},
    {"pivot_root", SYS_pivot_root, 0},
    {"setns", SYS_setns, 0},
    {"capset", SYS_capset, 0},
};

int main(int count, char **words) {
    if (count < 4 || strcmp(words[2], "--"))
        return 2;
    for (size_t at = 0; at < sizeof calls / sizeof *calls; at++) {
        if (strcmp(words[1], calls[at].name))
            continue;
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[at].number, 0, 5),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]) + 4),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, calls[at].with_first, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        /* Not this call: past the refusal. */
        filter[1].jf = 5;
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
            perror("deny");
            return 1;
        }
        execvp(words[3], words + 3);
        perror(words[3]);
        return 127;
    }
    return 2;
}
