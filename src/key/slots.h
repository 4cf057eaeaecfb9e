/*
 * The key file that each endpoint has: the archive's keys, sealed once for each way to open them (a slot, as LUKS has
 * them), and this endpoint's share of the secret that some of the slots need. Pure functions; the parser takes bytes
 * from anywhere.
 *
 *   split        the shared secret alone: as many endpoints as the threshold says
 *   passphrase   a passphrase and the shared secret: fewer endpoints cannot even guess
 *   alone        a passphrase alone
 *   code         160 random bits that someone has printed
 *   recipient    the holder of an X25519 key
 *
 * All endpoints have the same slots and the same list of digests of the shares, so that a share that was forged, and
 * who forged it, is known by the list that most have: see ecfs_secret_gather ().
 */
#ifndef ECFS_KEY_SLOTS_H
#define ECFS_KEY_SLOTS_H

#include "key/key.h"
#include "key/shamir.h"
#include "util/uuid.h"

#define ECFS_KEY_FILE_MAX_BYTES  (2u << 20) /* more than any that can be made */
#define ECFS_KEY_SLOTS_MAX       64
#define ECFS_KEY_SLOT_SEALED_MAX (16u << 10)
#define ECFS_CODE_BYTES          20
#define ECFS_CODE_TEXT_SIZE      40 /* eight groups of four characters, dashes between them, a NUL */

typedef enum EcfsKeySlotKind {
    ECFS_KEY_SLOT_SPLIT = 1,
    ECFS_KEY_SLOT_PASSPHRASE,
    ECFS_KEY_SLOT_ALONE,
    ECFS_KEY_SLOT_CODE,
    ECFS_KEY_SLOT_RECIPIENT,
} EcfsKeySlotKind;

typedef struct EcfsKeySlot {
    EcfsUuid id;
    EcfsKeySlotKind kind;
    uint8_t salt[ECFS_KEY_BYTES]; /* random; recipient: the X25519 key that was made for this slot */
    uint8_t log2_n, r, p;         /* of scrypt; 0 where there is no passphrase */
    uint8_t note_bytes;           /* what of @note counts; none in a file without a revision */
    uint8_t note[UINT8_MAX];      /* recipient: the public key that it was made for */
    GByteArray *sealed;           /* what it opens: at most ECFS_KEY_SLOT_SEALED_MAX bytes */
} EcfsKeySlot;

typedef struct EcfsKeyFile {
    EcfsUuid archive;
    EcfsUuid generation; /* of the shares: made anew each has another one */
    uint8_t threshold;   /* 0: no secret is shared, and there are no shares */
    uint8_t n_shares;
    uint8_t (*digests)[ECFS_KEY_BYTES]; /* n_shares, SHA-256 of each share in the order of x */
    EcfsShare share;                    /* x = 0: this endpoint has none */
    GPtrArray *slots;                   /* of EcfsKeySlot */
    uint64_t revision;                  /* grows when slots come and go; 0: written before there were any */
    EcfsUuid key;                       /* id of the archive's key that the next is made with */
    uint8_t mac[ECFS_KEY_BYTES];        /* of all but the share, so that nobody takes a slot away unseen */
} EcfsKeyFile;

/* What a user gives to open a slot, or to make it: what its kind needs, the others NULL. */
typedef struct EcfsKeyOpener {
    const uint8_t *secret;      /* ECFS_SECRET_BYTES, shared: split, passphrase */
    const char *passphrase;     /* passphrase, alone */
    const uint8_t *code;        /* ECFS_CODE_BYTES */
    const uint8_t *private_key; /* X25519, 32 bytes: to open for a recipient */
    const uint8_t *public_key;  /* X25519, 32 bytes: to make a slot for a recipient */
} EcfsKeyOpener;

/** Seals @bytes in a new slot; NULL and EINVAL: what its kind needs is missing or impossible. ecfs_key_slot_free (). */
EcfsKeySlot *ecfs_key_slot_new (EcfsKeySlotKind kind, const EcfsUuid *archive, const EcfsKeyOpener *opener,
                                const GByteArray *bytes, GError **error);
/**
 * What the slot was made with, for ecfs_key_forget_array (). EINVAL: @opener lacks what this kind needs; EBADMSG: it is
 * not the right one, or the slot is damaged or of another archive; ERANGE: parameters beyond all measure.
 */
GByteArray *ecfs_key_slot_open (const EcfsKeySlot *self, const EcfsUuid *archive, const EcfsKeyOpener *opener,
                                GError **error);
void ecfs_key_slot_free (EcfsKeySlot *self);
EcfsKeySlot *ecfs_key_slot_copy (const EcfsKeySlot *self);
/** All that it says, as in a file with a revision; g_byte_array_unref (). */
GByteArray *ecfs_key_slot_format (const EcfsKeySlot *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsKeySlot, ecfs_key_slot_free)

/** "split", ... as in ecfs-key(1). */
const char *ecfs_key_slot_kind_text (EcfsKeySlotKind kind);

/** A code as it is printed: groups of base 32 (RFC 4648). */
void ecfs_code_text (const uint8_t code[ECFS_CODE_BYTES], char text[ECFS_CODE_TEXT_SIZE]);
/** Reads one as people type it: in any case, with or without dashes and spaces. False when it is none. */
bool ecfs_code_parse (const char *text, uint8_t ret_code[ECFS_CODE_BYTES]);

/** Bytes of the file, which has ECFS_KEY_SLOTS_MAX slots at most; g_byte_array_unref (). */
GByteArray *ecfs_key_file_format (const EcfsKeyFile *file);
/** EBADMSG: it is none, or damaged; ENOTSUP: it needs a later ecfs. ecfs_key_file_clear () afterwards. */
bool ecfs_key_file_parse (const uint8_t *bytes, size_t size, EcfsKeyFile *ret_file, GError **error);
void ecfs_key_file_clear (EcfsKeyFile *file);
/** What @key, which nobody without the archive's keys has, makes of all but the share. */
void ecfs_key_file_mac (const EcfsKeyFile *file, const uint8_t key[ECFS_KEY_BYTES], uint8_t ret_mac[ECFS_KEY_BYTES]);

/** The digest of a share, as key files list them. */
void ecfs_share_digest (const EcfsUuid *archive, const EcfsUuid *generation, const EcfsShare *share,
                        uint8_t ret_digest[ECFS_KEY_BYTES]);

/* What an endpoint says of the shared secret. */
typedef struct EcfsShareWitness {
    const char *zone;        /* what may lie together has one zone; borrowed */
    const EcfsKeyFile *file; /* borrowed; NULL: it has none, or none that can be read */
    bool contradicts;        /* set: its list is not the one that most have, or its share is not in that */
} EcfsShareWitness;

/**
 * Whether what @n_with zones say counts although others say something else. Few that are here could outvote the few of
 * the others that are, so they are to be as many as anybody says are needed: @most_needed. But who lies can say that
 * all are. So they count also where one more of them say it than have to by their own @threshold, and @n_against, the
 * zones that say something else, are no more than may lie by that.
 */
bool ecfs_zones_settle (unsigned n_with, unsigned n_against, unsigned threshold, unsigned most_needed);

/**
 * The secret that the shares of these endpoints make. Believed is the list of digests that endpoints in the most zones
 * have, if ecfs_zones_settle (), with the shares that it tells of; its threshold of them is needed. Where at most
 * `tolerance` zones lie, and tolerance + 1 = threshold < zones - tolerance, that is the honest one, whatever they say.
 *
 * ENODATA: there are too few shares, the message says how many; ENOTUNIQ: two lists are in as many zones, or too few
 * agree. Then `contradicts` is said of those that do not have the list that is in the most zones, or one of these.
 */
bool ecfs_secret_gather (const EcfsUuid *archive, EcfsShareWitness *witnesses, size_t n_witnesses,
                         uint8_t ret_secret[ECFS_SECRET_BYTES], EcfsUuid *ret_generation, GError **error);

#endif
