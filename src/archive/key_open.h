/*
 * The archive's keys from the key files of endpoints (key/slots.h): by their shares alone, or with what somebody has
 * kept. Endpoints may lie. A slot that one of them made up opens nothing, and costs little: those that most zones have
 * are tried first, each once, and scrypt only so often.
 */
#ifndef ECFS_ARCHIVE_KEY_OPEN_H
#define ECFS_ARCHIVE_KEY_OPEN_H

#include "archive/key_slots.h"

/* What opens slots that shares alone do not; NULL: it was not given. */
typedef struct EcfsKeyGiven {
    const char *passphrase;
    const char *code;     /* as it was printed */
    const char *identity; /* text of a private X25519 key, PEM */
    /* Asks for "passphrase" or "code", once at most, where most zones have a slot that needs it and none was given.
     * NULL, or NULL as an answer: nobody is there to be asked. The text is forgotten and g_free ()d. */
    char *(*ask) (void *user, const char *what);
    void *user;
    /* How much of what else endpoints have is authentic under these keys, where key files of several generations are
     * there, of which one may have been begun only; NULL: the newest counts. */
    size_t (*weigh) (void *user, const EcfsKeyRing *keys);
    void *weigh_user;
    bool only; /* where one of these is given, what opens without it does not count */
} EcfsKeyGiven;

/* A key file that was found. */
typedef struct EcfsKeyFound {
    const char *endpoint; /* its name; borrowed, as the zone */
    const char *zone;
    bool distrusted; /* nothing that it says counts */
    EcfsKeyFile file;
} EcfsKeyFound;

/** Of EcfsKeyFound; g_array_unref (). */
GArray *ecfs_key_found_new (void);

typedef void (*EcfsKeyTell) (void *user, const char *text);

/** Adds the key files of @archive that an endpoint has to @all. What cannot be read is told, and is left out. Blocks.
 */
void ecfs_key_find (EcfsEndpoint *endpoint, const EcfsUuid *archive, const EcfsKeyFound *where, GArray *all,
                    EcfsKeyTell tell, void *user);

/* What an attempt to open came to. */
typedef struct EcfsKeyOpened {
    EcfsKeyRing *keys;
    EcfsKeyShares *shares; /* the newest revision that these keys have signed */
    EcfsKeySlotKind kind;  /* of the slot that opened */
    EcfsUuid slot;
} EcfsKeyOpened;

/** ENOKEY, with what is missing, and how to give it; ret_opened is to be cleared otherwise. May take as long as it
 * takes to ask. */
bool ecfs_key_open_found (const EcfsUuid *archive, GArray *all, const EcfsKeyGiven *given, EcfsKeyTell tell, void *user,
                          EcfsKeyOpened *ret_opened, GError **error);
void ecfs_key_opened_clear (EcfsKeyOpened *opened);

/** The newest revision that was found and that these keys have signed, of two as new that which more zones have; NULL:
 * there is none. ecfs_key_shares_free () */
EcfsKeyShares *ecfs_key_newest (const EcfsKeyRing *keys, const GArray *all);

#endif
