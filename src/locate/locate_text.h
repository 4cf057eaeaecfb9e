/*
 * What ecfs and ecfs-locate say to each other, who speaks for it in a distributed hash table: lines, of which each is
 * one word and what belongs to it. Pure, on bytes that nobody vouches for: whoever talks to that process by the network
 * may have made it another one.
 */
#ifndef ECFS_LOCATE_LOCATE_TEXT_H
#define ECFS_LOCATE_LOCATE_TEXT_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECFS_LOCATE_KEY_BYTES 20
#define ECFS_LOCATE_VALUE_MAX 32768 /* bytes */
#define ECFS_LOCATE_LINE_MAX  65536 /* with its end */

typedef enum EcfsLocateWord {
    ECFS_LOCATE_BOOTSTRAP, /* "bootstrap PORT HOST": who knows others */
    ECFS_LOCATE_PUT,       /* "put NUMBER KEY BASE64" */
    ECFS_LOCATE_GET,       /* "get NUMBER KEY" */
    ECFS_LOCATE_READY,     /* "ready PORT": it is at that port */
    ECFS_LOCATE_VALUE,     /* "value NUMBER BASE64": one that was found */
    ECFS_LOCATE_DONE,      /* "done NUMBER yes|no": whether anybody has answered */
    ECFS_LOCATE_FAILED,    /* "failed TEXT": it ends */
} EcfsLocateWord;

typedef struct EcfsLocateLine {
    EcfsLocateWord word;
    uint64_t number; /* of the question */
    uint8_t key[ECFS_LOCATE_KEY_BYTES];
    GBytes *bytes; /* of a value; NULL: none */
    unsigned port;
    char *text; /* a host, or what has failed; NULL: none */
    bool good;
} EcfsLocateLine;

/** A line without its end. False: it is none. What is returned is for ecfs_locate_line_clear (). */
bool ecfs_locate_line_parse (const char *text, size_t size, EcfsLocateLine *ret_line);
/** The same, with its end; g_free (). */
char *ecfs_locate_line_format (const EcfsLocateLine *line);
void ecfs_locate_line_clear (EcfsLocateLine *line);

#endif
