/*
 * What happens to an archive, as the command `on_event` of ecfs.conf is told it. Somebody notes how things are, as
 * often as he likes; the command is run for what has changed since it was told last.
 *
 *   so now    as told    what is done
 *   no        no         nothing
 *   yes       no         the event is told
 *   yes       otherwise  it is told again: it has become worse, or is another one
 *   no        yes        "up" is told for "down"; of others nobody wants to know that they are over
 *
 * One command runs at a time, for five minutes at most. About the same thing it is run once a minute at most, and while
 * that goes on, each time only after twice as long, up to an hour: what flaps is told as it is then. What was told is
 * kept in ARCHIVE/events, so that the next mount does not tell it again.
 *
 * Where there is no command, nothing is kept. `hook`, the form before, is run for "down", "up" and "damaged", with more
 * arguments, where there is no `on_event`.
 *
 * Thread-safe; its lock is inner to all others. Nothing waits for the command but ecfs_events_await ().
 */
#ifndef ECFS_ARCHIVE_EVENTS_H
#define ECFS_ARCHIVE_EVENTS_H

#include "archive/archive.h"

#define ECFS_EVENTS_NAME "events" /* in the archive directory */

/* Between two runs about the same thing, at least; and what a command may take. Tests shorten them. */
extern _Atomic int64_t ecfs_events_rest_us, ecfs_events_run_us;

typedef struct EcfsEvents EcfsEvents;

EcfsEvents *ecfs_events_new (const EcfsArchive *archive);
/** A command that still runs is left to itself. NULL is accepted. */
void ecfs_events_free (EcfsEvents *self);

/** Whether there is a command to be run. */
bool ecfs_events_wanted (const EcfsEvents *self);

/**
 * How it is now with @event of @endpoint ("": of the archive). @sign: that it is so, and what tells it from the same
 * event at another time, such as how bad it is; NULL: it is not so. @text: for people; may hold what servers say.
 */
void ecfs_events_note (EcfsEvents *self, const char *event, const char *endpoint, const char *sign, const char *text);

/** Runs the command for what is due, and looks after one that runs. To be called every few seconds; does not wait. */
void ecfs_events_step (EcfsEvents *self);

/** Steps until all that changed is told and the command has ended, or @deadline_us (monotonic). */
void ecfs_events_await (EcfsEvents *self, int64_t deadline_us);

/** What became of the command, as ARCHIVE/events keeps it. */
typedef struct EcfsEventsFacts {
    char *failure;    /* why it failed the last time that it ran; NULL: it did not; owned */
    int64_t failed_s; /* since 1970 */
    int64_t told_s;   /* when it ran last; 0: never */
    char *told;       /* of what; NULL: of nothing; owned */
} EcfsEventsFacts;

/** To be cleared. Any process may ask. */
void ecfs_events_facts (const EcfsArchive *archive, EcfsEventsFacts *ret_facts);
void ecfs_events_facts_clear (EcfsEventsFacts *facts);

#endif
