/*
 * What reader.c (requests, readahead), fetch.c (getting a range of blocks), cached.c (from and into the cache) and
 * lanes.c (what is known of the stripes' endpoints) share.
 *
 * A request waits for the memory of all the fetches it needs before it makes or uses any: one that held some memory
 * while it waits for more could wait for another that does the same. So a fetch has its memory from the start, and gets
 * check blocks [block_lo, block_hi) of the wanted data packets of one segment:
 *
 *   state    meaning                                               moved on by
 *   looking  the cache is asked, and then peers                    their answer, tick → running or ready
 *   running  slots are asked; some have arrived, some failed       slot callbacks, tick → decoding, ready or failed;
 *                                                                  a peer's late answer → ready
 *   decoding a worker computes the wanted packets that are missing worker → ready
 *   ready    out[] of every wanted packet is valid                 -
 *   failed   error is set                                          -
 *
 * A slot is the blocks of one stripe in one fetch. References: the reader's list holds one per fetch, every request
 * that waits for or uses it one, every asked slot one (its memory is lent to the endpoint until done), a decoding
 * worker one, and a look in the cache one as long as somebody waits for it, or it reads.
 */
#ifndef ECFS_OBJECT_READER_PRIV_H
#define ECFS_OBJECT_READER_PRIV_H

#include "object/lane.h"
#include "object/reader.h"
#include "object/scheduler.h"
#include "util/lock.h"

#include <stdatomic.h>

typedef enum FetchState { FETCH_LOOKING, FETCH_RUNNING, FETCH_DECODING, FETCH_READY, FETCH_FAILED } FetchState;

typedef struct EcfsFetch EcfsFetch;

typedef struct EcfsFetchSlot {
    EcfsFetch *fetch;
    unsigned index;      /* of the stripe */
    EcfsStream *stream;  /* guarded by reader lock */
    uint8_t *buffer;     /* lent to the endpoint while asked */
    bool asked;          /* guarded by reader lock */
    bool arrived;        /* guarded by reader lock */
    bool failed;         /* for good; guarded by reader lock */
    int failed_code;     /* of the last failure; guarded by reader lock */
    unsigned attempts;   /* guarded by reader lock */
    int64_t retry_us;    /* not asked again before; 0: no pause; guarded by reader lock */
    int64_t asked_us;    /* guarded by reader lock */
    size_t filled;       /* bytes that came; guarded by reader lock, like all up to n_verified */
    uint64_t mark;       /* its lane's asked_bytes right after it was asked */
    uint64_t number;     /* of the asking, over all lanes */
    unsigned n_overtook; /* that were asked later and have come since */
    int64_t foretold_us; /* how long it takes in nearly all cases, as of the last look */
    int64_t promise_us;  /* when it was to be here by that */
    bool extra;          /* asked because others are late */
    bool hedged;         /* it is late, and others were asked in its place */
    uint32_t n_verified; /* blocks; the endpoint's thread only, while asked */
    bool damaged;        /* the same */
} EcfsFetchSlot;

struct EcfsFetch {
    unsigned references; /* guarded by reader lock, like everything that has no other remark */
    EcfsReader *reader;  /* immutable */
    uint64_t segment;    /* immutable */
    uint32_t block_lo;   /* immutable */
    uint32_t block_hi;   /* immutable */
    bool whole;          /* all packets, all blocks; immutable */
    bool patient;        /* traffic counts, not time: nothing is asked for because something else is late; immutable */
    bool listed;         /* on the reader's list */
    EcfsPeerWish wish;   /* anything but WANTED: the program has not come to it yet */
    bool is_cached;      /* it came from the cache; immutable in ready, as the next */
    bool is_from_peer;
    bool asks_all;   /* peers were asked once more, as endpoints cannot give it */
    bool is_claimed; /* peers wait for it: ecfs_peers_settle () is due; set before ready, then guarded by opening */
    FetchState state;
    int64_t looked_us;          /* since when it is looking, of ecfs_own_us () */
    struct EcfsFetchLook *look; /* that waits for its turn, or has it; NULL: none does */
    size_t slot_bytes;          /* immutable */
    size_t granted_bytes;       /* grows when a peer's answer brings memory of its own */
    int64_t used_us;            /* when it was last of use */
    bool *wanted;               /* n; immutable */
    EcfsFetchSlot *slots;       /* n */
    uint8_t **out;              /* n; valid in ready for the wanted: a slot's buffer or a decoded one */
    uint8_t **decoded;          /* n; buffers that decoding filled, or a peer */
    GPtrArray *waiting;         /* of Request, borrowed */
    EcfsMutex opening;          /* inner to none; outer to those of cache and transfers */
    bool is_open;               /* what is in out[] was deciphered, and copied for the cache; guarded by opening */
    GString *failures;
    GError *error;
};

/* One ecfs_reader_read () or ecfs_reader_borrow (). */
typedef struct EcfsLoan Request;
struct EcfsLoan {
    EcfsReader *reader; /* a reference */
    uint64_t offset;
    size_t size;
    bool sequential;
    bool in_pieces;            /* the whole segment could not be read */
    bool was_small;            /* parts of segments could not, and whole ones are read */
    size_t granted_bytes;      /* memory that no fetch has taken over yet */
    EcfsReaderDone done;       /* or */
    EcfsReaderRebuilt rebuilt; /* for packets, from one fetch */
    void *user;
    unsigned n_waiting; /* fetches; guarded by reader lock */
    GPtrArray *fetches; /* references */
    GArray *iov;        /* of struct iovec: the answer */
    bool borrowed;      /* it stays until it is given back */
    GError *error;      /* guarded by reader lock */
};

struct EcfsReader {
    atomic_uint references;
    EcfsMutex lock;
    EcfsReaderParams params;   /* immutable */
    int64_t made_us;           /* immutable */
    unsigned n;                /* immutable */
    EcfsReaderStripe *stripes; /* n; immutable */
    EcfsLane *lanes;           /* n; guarded by lock */
    GPtrArray *fetches;        /* of EcfsFetch; guarded by lock */
    GHashTable *plans;    /* loss pattern (n flags as bytes) → EcfsPlan; guarded by lock, plans are kept to the end */
    bool closed;          /* guarded by lock */
    uint64_t next_offset; /* where sequential reading would go on; guarded by lock */
    int64_t asked_us;     /* when somebody read last; guarded by lock */
    uint64_t run_from;    /* where reading jumped to last; guarded by lock */
    uint64_t run_bytes;   /* read since then; guarded by lock */
    uint64_t run_enough;  /* bytes in a row that are sequential reading; immutable from the first read on */
    bool expects_all;     /* the first read is a sequential one; guarded by lock */
    unsigned window;      /* segments to read ahead; guarded by lock */
    GHashTable *claims;   /* uint64_t: segments ahead that were claimed, or are others'; guarded by lock */
    uint64_t refused_at[ECFS_PEER_OFFER + 1]; /* of EcfsPeerWish: where those began that one was of; guarded by lock */
    uint64_t refused_open;    /* how many could be claimed when anything was refused last; guarded by lock */
    unsigned n_at_once;       /* segments that may come from endpoints at once while others read; guarded by lock */
    int64_t sign_us;          /* of others that read the same, the last; 0: none; guarded by lock */
    int64_t shared_us;        /* since when there were always such; guarded by lock */
    uint64_t n_open;          /* segments that may be claimed meanwhile; guarded by lock */
    GByteArray *chain;        /* NULL: it is not known; guarded by lock, and stays once it is, like what it has */
    bool seeks_chain;         /* guarded by lock, like the next two */
    int64_t chain_rests_us;   /* it is not sought again before */
    GPtrArray *awaiting;      /* of EcfsFetchLook: peers are asked when it is there */
    uint64_t measured_offset; /* next_offset at the last tick; guarded by lock, like all below */
    int64_t measured_us;
    int64_t reach_us;        /* until a stall is found and what is missing has come from elsewhere */
    double consumes_per_s;   /* content bytes, of late */
    uint64_t received_bytes; /* in slots that arrived */
    uint64_t extra_bytes;    /* that came and were not needed */
    uint64_t hedging_bytes;  /* of slots that are asked because others are late */
    uint64_t n_asked;        /* slots, in all */
    unsigned n_running;      /* slots that are asked */
};

EcfsReader *ecfs_reader_ref_priv (EcfsReader *self);
void ecfs_reader_unref_priv (EcfsReader *self);

/* A running fetch with one reference for the list; takes over a grant of ecfs_fetch_bytes (). Nothing is asked yet. */
EcfsFetch *ecfs_fetch_new (EcfsReader *reader, uint64_t segment, int packet, uint32_t block_lo, uint32_t block_hi);
/* The same for the packets of the stripes @wanted (n flags), whole; takes over a grant of ecfs_reader_rebuild_bytes ().
 */
EcfsFetch *ecfs_fetch_new_rebuild (EcfsReader *reader, uint64_t segment, const bool *wanted);
size_t ecfs_fetch_bytes (const EcfsReader *reader, uint64_t segment, bool whole, uint32_t block_lo, uint32_t block_hi);

/* Looks at all lanes again, asks what the scheduler says; requests that are complete go to @finished. */
void ecfs_fetch_schedule_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock);
/* The same of all, in the order of their segments. */
void ecfs_reader_schedule_locked (EcfsReader *self, GPtrArray *finished) ECFS_REQUIRES (self->lock);
/* Ends a running fetch that nobody waits for. */
void ecfs_fetch_abandon_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
void ecfs_fetch_ref_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
void ecfs_fetch_unref_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* Takes it off the reader's list, if it is there. */
void ecfs_fetch_unlist_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* Before the first byte of a ready fetch is given away: what it has goes to the cache, as it is stored, and is
 * deciphered. Without the lock. */
void ecfs_fetch_open (EcfsFetch *self);
/* All that it wants is in slots, without the help of endpoints. */
void ecfs_fetch_came_cached_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock);
/* All that it wants is in decoded[], tags included. */
void ecfs_fetch_came_from_peer_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock);

/* Asks the cache, if there is one that answers now: then the fetch is looking. */
void ecfs_fetch_look_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* Goes on without an answer that is too long in coming. Returns whether it is to be scheduled. */
bool ecfs_fetch_give_up_locked (EcfsFetch *self, int64_t now_us) ECFS_REQUIRES (self->reader->lock);
/* A look that waits for its turn keeps no memory of it any more. Whoever calls has a reference. */
void ecfs_fetch_leave_look_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* Offers what came from endpoints or a peer to the cache. Before it is deciphered; with opening. */
void ecfs_fetch_offer (EcfsFetch *self);
/* Peers need not wait for it any more. With opening, or the last reference. */
void ecfs_fetch_settle (EcfsFetch *self);
/* Those that wait for it may go on to. */
void ecfs_fetch_tell_progress (const EcfsFetch *self);
/* Whether peers are asked, and have not answered: it may still come from them. */
bool ecfs_fetch_awaits_peers_locked (const EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* Whether they may be asked yet, as what they are judged by is sought. */
bool ecfs_fetch_awaits_chain_locked (const EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* Whether all peers are asked, as endpoints cannot give it; once. */
bool ecfs_fetch_ask_all_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* It is what it becomes without the answer of peers. */
void ecfs_fetch_leave_peers_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);
/* Where content bytes of packet @packet from byte @at of the packet on are, and how many in a row. */
uint8_t *ecfs_fetch_bytes_at (const EcfsFetch *self, unsigned packet, uint32_t at, uint32_t *ret_bytes);

/* Looks at the endpoints, and at how fast they and the reader are. Returns whether one has become suspect. */
bool ecfs_lanes_refresh_locked (EcfsReader *self, int64_t now_us) ECFS_REQUIRES (self->lock);
/* Content that reading ahead has to cover, so that the reader need not wait while a stall is found and made good. */
uint64_t ecfs_reader_reach_locked (const EcfsReader *self) ECFS_REQUIRES (self->lock);
/* Lanes that owe this fetch bytes and show none for their stall time. Returns whether one is newly found. */
bool ecfs_lanes_find_stalls_locked (EcfsFetch *fetch, int64_t now_us) ECFS_REQUIRES (fetch->reader->lock);
/* Whether something that it asked for is later than nearly all such packets are. */
bool ecfs_fetch_is_late_locked (const EcfsFetch *self, int64_t now_us) ECFS_REQUIRES (self->reader->lock);
/* Tells the log which endpoints a ready fetch was read around, and counts it. */
void ecfs_fetch_explain_locked (const EcfsFetch *self, bool decoded) ECFS_REQUIRES (self->reader->lock);
/* For the scheduler: n lanes, and what the fetch may take. */
void ecfs_fetch_outlook_locked (EcfsFetch *self, int64_t now_us, EcfsCandidate *ret_lanes)
    ECFS_REQUIRES (self->reader->lock);
EcfsWanted ecfs_fetch_wanted_locked (const EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);

/* A fetch that covers the blocks; NULL: there is none. */
EcfsFetch *ecfs_reader_covering_locked (const EcfsReader *self, uint64_t segment, int packet, uint32_t block_lo,
                                        uint32_t block_hi) ECFS_REQUIRES (self->lock);
/* Begins with a whole segment that nobody waits for; takes over a grant of ecfs_fetch_bytes (). */
void ecfs_reader_begin_locked (EcfsReader *self, uint64_t segment, EcfsPeerWish wish, GPtrArray *finished)
    ECFS_REQUIRES (self->lock);

/* Whether segments may come from peers, and go to them. */
bool ecfs_reader_has_peers (const EcfsReader *self);
/* share.c: begins what is to be fetched for others as well. */
void ecfs_reader_share_locked (EcfsReader *self, int64_t now_us, GPtrArray *finished) ECFS_REQUIRES (self->lock);
/* Whether there is a sign of others that read the same. */
bool ecfs_reader_is_shared_locked (const EcfsReader *self, int64_t now_us) ECFS_REQUIRES (self->lock);
/* One was seen now. */
void ecfs_reader_note_sign_locked (EcfsReader *self, int64_t now_us) ECFS_REQUIRES (self->lock);
/* Peers do not want it to be fetched, or have not what may come of them: no more of such until the program has read on,
 * or twice as many may be claimed. */
void ecfs_reader_refused_locked (EcfsReader *self, EcfsPeerWish wish) ECFS_REQUIRES (self->lock);
bool ecfs_reader_is_refused_locked (const EcfsReader *self, EcfsPeerWish wish) ECFS_REQUIRES (self->lock);
/* Segments to read ahead from wherever it be; those behind them, up to window, only from peers. */
unsigned ecfs_reader_window_locked (const EcfsReader *self) ECFS_REQUIRES (self->lock);
/* A segment came from endpoints, of which peers know that it is fetched, after so long. */
void ecfs_reader_note_given_locked (EcfsReader *self, int64_t took_us) ECFS_REQUIRES (self->lock);
/* Whether peers said that somebody else reads it. */
bool ecfs_fetch_is_shared_locked (const EcfsFetch *self) ECFS_REQUIRES (self->reader->lock);

/* Answers the requests, without the lock, and frees the array. */
void ecfs_requests_finish (GPtrArray *finished);

#endif
