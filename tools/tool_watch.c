/* What a verb that asks, tells and takes long shows on the terminal, and how it is interrupted. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHOW_US (G_USEC_PER_SEC / 4)

void tool_watch_begin (ToolWatch *self, const char *verb, bool quiet)
{
    *self = (ToolWatch){.verb = verb, .terminal = isatty (STDERR_FILENO) && !quiet};
    tool_catch_interrupts ();
}

void tool_watch_end (ToolWatch *self)
{
    if (self->shown)
        fputs ("\r\033[K", stderr);
    self->shown = false;
}

void tool_watch_tell (void *watch, const char *text)
{
    ToolWatch *self = watch;
    g_autofree char *printable = tool_printable (text);
    tool_watch_end (self);
    tool_say (self->verb, "%s", printable);
}

bool tool_watch_tick (void *watch, const char *phase, uint64_t n_done, uint64_t n_all)
{
    ToolWatch *self = watch;
    int64_t now_us = g_get_monotonic_time ();
    if (tool_is_interrupted ())
        return false;
    if (!self->terminal || now_us < self->next_us)
        return true;
    self->next_us = now_us + SHOW_US;
    self->shown = true;
    fprintf (stderr, "\r\033[K%s: %" PRIu64 " of %" PRIu64, phase, n_done, n_all);
    return true;
}

bool tool_watch_can_ask (void)
{
    return isatty (STDIN_FILENO) && isatty (STDERR_FILENO);
}

bool tool_watch_ask (ToolWatch *self, const char *text, const char *to_what)
{
    char answer[8];
    tool_watch_end (self);
    tool_say (self->verb, "%s", text);
    fprintf (stderr, "Type \"yes\" to %s: ", to_what);
    return fgets (answer, sizeof answer, stdin) != NULL && strcmp (answer, "yes\n") == 0;
}
