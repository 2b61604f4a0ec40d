#include "cli/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/machine.h"

enum { MAX_BAR = 40, MIN_BAR = 8, MAX_WIDTH = 200 };
static const double least_gap = 0.1; /* seconds between two drawings */

void bk_progress_begin(bk_progress *p, int64_t total, int64_t first)
{
    const char *term = getenv("TERM");
    *p = (bk_progress){.on = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0,
                       .total = total,
                       .first = first,
                       .start = bk_now()};
}

double bk_progress_elapsed(const bk_progress *p)
{
    return bk_now() - p->start;
}

double bk_progress_left(const bk_progress *p, int64_t done)
{
    const int64_t n = done - p->first; /* steps of this run */
    return n > 0 ? bk_progress_elapsed(p) / (double)n * (double)(p->total - done) : (double)NAN;
}

char *bk_progress_clock(char out[BK_CLOCK_LEN], double seconds)
{
    if (!(seconds < 1e15)) return strcpy(out, "-:--");
    const long long s = llround(seconds), hours = s / 3600, minutes = s / 60 % 60;
    if (hours > 0)
        snprintf(out, BK_CLOCK_LEN, "%lld:%02lld:%02lld", hours, minutes, s % 60);
    else
        snprintf(out, BK_CLOCK_LEN, "%lld:%02lld", minutes, s % 60);
    return out;
}

/* Columns that a line may fill: in the last one, some terminals wrap. */
static int line_width(void)
{
    struct winsize size;
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const int width = known ? size.ws_col - 1 : 79;
    return width < MAX_WIDTH ? width : MAX_WIDTH;
}

/* Bytes of the first n columns of a UTF-8 text, one column a character. *columns gets how many there are, n
 * at most. */
static int bytes_of(int *columns, const char *text, int n)
{
    int k = 0;
    *columns = 0;
    for (; text[k]; k++) {
        const bool starts = ((unsigned char)text[k] & 0xc0) != 0x80;
        if (starts && *columns == n) break;
        *columns += starts;
    }
    return k;
}

void bk_progress_draw(bk_progress *p, int64_t done, const char *text)
{
    const double now = bk_now();
    if (!p->on || (p->drawn > 0 && now - p->drawn < least_gap)) return;
    p->drawn = now;
    const double share = p->total > 0 ? (double)done / (double)p->total : 1;
    char tail[MAX_WIDTH], left[BK_CLOCK_LEN], bar[MAX_BAR + 1] = "";
    snprintf(tail, sizeof tail, "%3d%%  %lld/%lld  %s  ETA %s", (int)(100 * share), (long long)done,
             (long long)p->total, text, bk_progress_clock(left, bk_progress_left(p, done)));
    int columns;
    const int width = line_width(), n_bytes = bytes_of(&columns, tail, width), room = width - columns - 3;
    const int cells = room > MAX_BAR ? MAX_BAR : room;
    if (cells < MIN_BAR) {
        printf("\r\033[K%.*s", n_bytes, tail);
    } else {
        memset(bar, '.', (size_t)cells);
        memset(bar, '#', (size_t)(share * cells));
        printf("\r\033[K[%s] %s", bar, tail);
    }
    fflush(stdout);
}

void bk_progress_clear(bk_progress *p)
{
    if (p->on && p->drawn > 0) fputs("\r\033[K", stdout);
    p->drawn = 0;
}
