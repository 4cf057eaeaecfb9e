/* What a verb that asks, tells and takes long shows on the terminal, and how it is interrupted. */
#include "tool.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tool_watch_begin (ToolWatch *self, const char *verb, bool quiet)
{
    *self = (ToolWatch){.verb = verb};
    tool_progress_begin (&self->progress, verb, quiet);
    tool_catch_interrupts ();
}

void tool_watch_end (ToolWatch *self)
{
    tool_progress_end (&self->progress);
}

void tool_watch_tell (void *watch, const char *text)
{
    ToolWatch *self = watch;
    g_autofree char *printable = tool_printable (text);
    tool_progress_clear (&self->progress);
    tool_say (self->verb, "%s", printable);
}

bool tool_watch_tick (void *watch, const char *phase, uint64_t n_done, uint64_t n_all)
{
    ToolWatch *self = watch;
    const ToolStep step = {.phase = phase, .n_done = n_done, .n_all = n_all};
    if (tool_is_interrupted ())
        return false;
    tool_progress_tell (&self->progress, &step);
    return true;
}

bool tool_watch_can_ask (void)
{
    return isatty (STDIN_FILENO) && isatty (STDERR_FILENO);
}

bool tool_watch_ask (ToolWatch *self, const char *text, const char *to_what)
{
    char answer[8];
    tool_progress_clear (&self->progress);
    tool_say (self->verb, "%s", text);
    fprintf (stderr, "Type \"yes\" to %s: ", to_what);
    return fgets (answer, sizeof answer, stdin) != NULL && strcmp (answer, "yes\n") == 0;
}
