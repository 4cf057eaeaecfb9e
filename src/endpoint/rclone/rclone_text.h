/*
 * What rclone says: lines of its log, of its lists, and what they mean. Pure functions on bytes that nobody vouches
 * for: much of them is words of servers.
 */
#ifndef ECFS_ENDPOINT_RCLONE_RCLONE_TEXT_H
#define ECFS_ENDPOINT_RCLONE_RCLONE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECFS_RCLONE_LINE_MAX (64 * 1024)

/* A line of the log. */
typedef struct EcfsRcloneLine {
    char *level;   /* NULL: it is plain text, as of programs that fail before they have a log */
    char *object;  /* what it is about; NULL: not told */
    char *message; /* in one line */
} EcfsRcloneLine;

/** Reads a line; clear it. */
void ecfs_rclone_line_parse (const char *text, size_t size, EcfsRcloneLine *ret_line);
void ecfs_rclone_line_clear (EcfsRcloneLine *line);

/* What an error means, as far as it can be told by its words. */
typedef enum EcfsRcloneMeaning {
    ECFS_RCLONE_OTHER,
    ECFS_RCLONE_ABSENT,  /* there is no such file */
    ECFS_RCLONE_BEYOND,  /* the file ends before that */
    ECFS_RCLONE_LINE,    /* the remote was not reached */
    ECFS_RCLONE_FULL,    /* no space */
    ECFS_RCLONE_QUOTA,   /* none for us */
    ECFS_RCLONE_REFUSED, /* who we are may not do that */
} EcfsRcloneMeaning;

EcfsRcloneMeaning ecfs_rclone_meaning (const char *message);

/* A file or directory in a list. */
typedef struct EcfsRcloneItem {
    char *path;
    uint64_t size;
    int64_t mtime_s;
    bool is_directory;
} EcfsRcloneItem;

/** Reads a line of `rclone lsjson`. False: there is none in it. */
bool ecfs_rclone_item_parse (const char *text, size_t size, EcfsRcloneItem *ret_item);
void ecfs_rclone_item_clear (EcfsRcloneItem *item);

/** Finds how much is free in what `rclone about --json` says. False: it does not tell. */
bool ecfs_rclone_free_parse (const char *text, size_t size, uint64_t *ret_free_bytes);

/** Reads "rclone/v1.60.1-DEV". */
bool ecfs_rclone_version_parse (const char *text, unsigned *ret_major, unsigned *ret_minor);

#endif
