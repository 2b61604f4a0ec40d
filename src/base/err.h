/* Status codes and the message that goes with them. Library code returns a bk_status and writes the message
 * once, where the facts are known; callers may put a place in front; the CLI prints it and picks the exit
 * code. */
#ifndef BK_BASE_ERR_H
#define BK_BASE_ERR_H

typedef enum {
    BK_OK = 0,
    BK_E_INPUT,   /* an option, file or argument is wrong: the user can mend it */
    BK_E_IO,      /* the system refused a file operation */
    BK_E_MEM,     /* not enough memory, or a size overflows */
    BK_E_CHECK,   /* a verifier, the checker or a comparison found a violation */
    BK_E_STOPPED, /* stopped on purpose (signal, time limit) */
} bk_status;

typedef struct bk_err {
    bk_status status;
    char msg[1024];
} bk_err;

/* Writes the message (cut at the buffer) and returns `status`. `e` may be NULL. */
bk_status bk_err_set(bk_err *e, bk_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts a place ("file x.yaml: ") in front of the message already there. Returns e's status. */
bk_status bk_err_prefix(bk_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Runs a call that returns bk_status; on failure jumps to `done` with st set. */
#define BK_TRY(call)                                                                                         \
    do {                                                                                                     \
        if ((st = (call)) != BK_OK) goto done;                                                               \
    } while (0)

#endif
