/* Asking for a cell: first from whom it is to be had, then for itself. One thread for each question. */
#include "peer/peer_priv.h"
#include "util/xxh3.h"

#include <inttypes.h>
#include <string.h>

#define ATTEMPTS         3
#define FAILURES         3    /* in a row: it is down */
#define WAIT_MS          250u /* for its answer, the first time; then twice as long, … */
#define MOST_WAIT_MS     1000u
#define PATIENCE_MOST_US (30 * G_USEC_PER_SEC)
#define PATIENCE_US      (5 * G_USEC_PER_SEC)  /* with one that answers that it is fetching, and gets nothing */
#define MOST_US          (20 * G_USEC_PER_SEC) /* of waiting for one that shows progress, or … */
#define MOST_TIMES       4                     /* … so many times what endpoints would take */
#define DOWN_US          (2 * G_USEC_PER_SEC)
#define SLOW_US          (30 * G_USEC_PER_SEC)
#define EMPTY            3      /* times: it is left alone for SLOW_US, and twice as long with each more */
#define MORE_US          150000 /* others get to answer when one has */
#define REFRESH_US       (30 * G_USEC_PER_SEC)

static bool is_over (const EcfsPeerAsking *self)
{
    return atomic_load (&self->look->is_left) || atomic_load (&self->peers->stopped);
}

/* What a peer did */

static void note_problem_locked (EcfsPeer *peer, const char *problem)
{
    g_free (peer->problem);
    peer->problem = g_strdup (problem);
}

/* It is not asked until it has answered again. One that is only busy may be silent for once. */
static void note_down (EcfsPeers *self, EcfsPeer *peer, const EcfsPeerAnswer *answer)
{
    const char *problem = answer->problem[0] != '\0' ? answer->problem : "it does not answer as a peer does";
    ecfs_mutex_lock (&self->lock);
    bool is_down = ++peer->n_failures >= FAILURES || !answer->is_silent;
    bool is_news = is_down && !ecfs_uuid_is_nil (&peer->id) && !peer->is_dropped;
    if (is_down) {
        peer->id = peer->is_dropped ? peer->id : (EcfsUuid){{0}}; /* it may still ask */
        peer->rests_until_us = ecfs_now_us () + DOWN_US;
    }
    note_problem_locked (peer, problem);
    ecfs_mutex_unlock (&self->lock);
    if (is_news)
        g_info ("peer %s: %s", peer->address, problem);
}

static void note_answers (EcfsPeers *self, EcfsPeer *peer)
{
    ecfs_mutex_lock (&self->lock);
    peer->n_failures = 0;
    ecfs_mutex_unlock (&self->lock);
}

static void note_slow (EcfsPeers *self, EcfsPeer *peer)
{
    ecfs_mutex_lock (&self->lock);
    peer->rests_until_us = ecfs_now_us () + SLOW_US;
    note_problem_locked (peer, "it was slower than the endpoints, and is not asked for half a minute");
    ecfs_mutex_unlock (&self->lock);
}

static void note_lie (EcfsPeers *self, EcfsPeer *peer, const EcfsCacheCell *cell)
{
    char object[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&cell->object, object);
    ecfs_mutex_lock (&self->lock);
    bool is_news = !peer->lies;
    peer->lies = true;
    note_problem_locked (peer, "it gave wrong bytes, and is not asked any more");
    ecfs_mutex_unlock (&self->lock);
    if (is_news)
        g_warning ("peer %s: segment %" PRIu64
                   " of object %s is not what was stored: it is not asked any more; look at "
                   "the disk of its cache, and at who has its account",
                   peer->address, cell->segment, object);
}

/* It promised, or gave, what it had not. Who is only slow may do so for once. */
static void note_empty (EcfsPeers *self, EcfsPeer *peer)
{
    ecfs_mutex_lock (&self->lock);
    peer->n_empty = MIN (peer->n_empty + 1, EMPTY + 7);
    if (peer->n_empty >= EMPTY) {
        peer->rests_until_us = ecfs_now_us () + (SLOW_US << (peer->n_empty - EMPTY));
        note_problem_locked (peer, "it does not give what it promises, and is not asked for a while");
    }
    ecfs_mutex_unlock (&self->lock);
}

static void note_bytes (EcfsPeers *self, EcfsPeer *peer, uint64_t bytes)
{
    ecfs_mutex_lock (&self->lock);
    peer->fetched_bytes += bytes;
    peer->n_failures = peer->n_empty = 0;
    if (!peer->lies)
        g_clear_pointer (&peer->problem, g_free);
    ecfs_mutex_unlock (&self->lock);
}

/* Who there is */

static bool is_usable_locked (const EcfsPeer *peer, int64_t now_us)
{
    return !ecfs_uuid_is_nil (&peer->id) && !peer->is_self && !peer->lies && !peer->is_dropped &&
           peer->rests_until_us <= now_us;
}

static uint64_t rank (const EcfsUuid *id, const EcfsCacheCell *cell)
{
    uint8_t bytes[sizeof id->bytes + sizeof cell->object.bytes + sizeof cell->segment];
    memcpy (bytes, id->bytes, sizeof id->bytes);
    memcpy (bytes + sizeof id->bytes, cell->object.bytes, sizeof cell->object.bytes);
    memcpy (bytes + sizeof id->bytes + sizeof cell->object.bytes, &cell->segment, sizeof cell->segment);
    return ecfs_xxh3_64 (bytes, sizeof bytes);
}

/* Who keeps the list of a cell. NULL: we do; *ret_any: whether there is anybody else. */
static EcfsPeer *keeper (EcfsPeers *self, const EcfsCacheCell *cell, bool *ret_any)
{
    EcfsPeer *best = NULL;
    int64_t now_us = ecfs_now_us ();
    *ret_any = false;
    uint64_t best_rank = atomic_load (&self->serves) ? rank (&self->id, cell) : UINT64_MAX;
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n; i++) {
        EcfsPeer *peer = &self->list[i];
        if (!is_usable_locked (peer, now_us))
            continue;
        *ret_any = true;
        uint64_t its_rank = rank (&peer->id, cell);
        best = its_rank < best_rank ? peer : best;
        best_rank = MIN (its_rank, best_rank);
    }
    ecfs_mutex_unlock (&self->lock);
    return best;
}

bool ecfs_peers_keeps (EcfsPeers *self, const EcfsCacheCell *cell)
{
    bool any;
    return atomic_load (&self->serves) && keeper (self, cell, &any) == NULL && any;
}

static EcfsPeer *peer_of (EcfsPeers *self, const EcfsUuid *id)
{
    EcfsPeer *found = NULL;
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n; i++)
        if (is_usable_locked (&self->list[i], now_us) && ecfs_uuid_equal (&self->list[i].id, id))
            found = &self->list[i];
    ecfs_mutex_unlock (&self->lock);
    return found;
}

/* Of those that have content without having asked for it, the one whose turn it is. NULL: there is none. */
static EcfsPeer *seeder (EcfsPeers *self, const EcfsCacheCell *cell)
{
    EcfsPeer *best = NULL;
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n; i++) {
        EcfsPeer *peer = &self->list[i];
        if (peer->is_seeder && is_usable_locked (peer, now_us) &&
            (best == NULL || rank (&peer->id, cell) < rank (&best->id, cell)))
            best = peer;
    }
    ecfs_mutex_unlock (&self->lock);
    return best;
}

static void note_up (EcfsPeers *self, EcfsPeer *peer, const EcfsUuid *id, bool is_seeder)
{
    ecfs_mutex_lock (&self->lock);
    if (ecfs_uuid_is_nil (&peer->id) && !peer->lies && !peer->is_dropped)
        g_clear_pointer (&peer->problem, g_free);
    peer->id = *id;
    peer->is_seeder = is_seeder;
    peer->is_self = ecfs_uuid_equal (id, &self->id);
    peer->met_us = ecfs_now_us ();
    peer->n_failures = 0;
    if (!peer->is_self)
        self->known_us = MIN (self->known_us, peer->met_us + MORE_US);
    ecfs_mutex_unlock (&self->lock);
}

typedef struct Greeting {
    EcfsPeers *peers;
    EcfsPeer *peer;
} Greeting;

static void greet (void *data)
{
    EcfsUuid id;
    EcfsPeerAnswer answer;
    g_autofree Greeting *greeting = data;
    EcfsPeers *self = greeting->peers;
    EcfsPeer *peer = greeting->peer;
    EcfsPeerRequest request = {.verb = ECFS_PEER_HELLO};
    if (ecfs_peer_call (self->client, peer->url, &request, NULL, &self->stopped, &answer) && answer.status == 200 &&
        ecfs_uuid_parse (answer.text, &id))
        note_up (self, peer, &id, answer.is_seeder);
    else
        note_down (self, peer, &answer);
    ecfs_mutex_lock (&self->lock);
    peer->is_greeted = false;
    self->has_greeted = --self->n_greeted == 0 || self->has_greeted;
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
}

static bool is_due_locked (const EcfsPeer *peer, int64_t now_us)
{
    return !peer->is_self && !peer->lies && !peer->is_greeted && peer->rests_until_us <= now_us &&
           (ecfs_uuid_is_nil (&peer->id) || now_us - peer->met_us > REFRESH_US);
}

void ecfs_peers_greet (void *peers)
{
    EcfsPeers *self = peers;
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n && self->callers != NULL; i++) {
        EcfsPeer *peer = &self->list[i];
        if (!is_due_locked (peer, now_us))
            continue;
        Greeting *greeting = g_new (Greeting, 1);
        *greeting = (Greeting){.peers = self, .peer = peer};
        peer->is_greeted = true;
        self->n_greeted++;
        ecfs_workers_push (self->callers, greet, greeting);
    }
    ecfs_mutex_unlock (&self->lock);
}

/* Who has just begun does not know anybody yet. */
static void await_greetings (EcfsPeers *self)
{
    ecfs_mutex_lock (&self->lock);
    while (!self->has_greeted && !atomic_load (&self->stopped) &&
           ecfs_cond_wait_until (&self->moved, &self->lock, self->known_us))
        ;
    ecfs_mutex_unlock (&self->lock);
}

/* One question */

static EcfsPeerRequest request_of (const EcfsPeerAsking *self, EcfsPeerVerb verb, const EcfsUuid *without)
{
    const EcfsCacheLook *look = self->look->look;
    const EcfsCacheRange *last = &look->ranges[look->n_ranges - 1];
    EcfsPeerRequest request = {.verb = verb, .cell = look->cell, .bytes = last->offset + last->size};
    request.wait_ms = verb == ECFS_PEER_GET ? WAIT_MS : 0;
    if (verb != ECFS_PEER_GET && atomic_load (&self->peers->serves))
        request.asker = self->peers->id;
    request.without = without == NULL ? request.without : *without;
    return request;
}

/* One that was silent until endpoints had given it would keep those who ask it next waiting as long. */
static bool call (const EcfsPeerAsking *self, EcfsPeer *peer, const EcfsPeerRequest *request,
                  EcfsPeerAnswer *ret_answer)
{
    EcfsPeers *peers = self->peers;
    bool good = ecfs_peer_call (peers->client, peer->url, request, self->look, &peers->stopped, ret_answer);
    if (good)
        note_answers (peers, peer);
    else if (ret_answer->is_given_up && ret_answer->bytes == 0 && atomic_load (&self->look->is_late)) {
        ret_answer->is_silent = true;
        g_strlcpy (ret_answer->problem, "it has stopped answering", sizeof ret_answer->problem);
        note_down (peers, peer, ret_answer);
    }
    return good;
}

/* Where somebody says. HERE: we have it ourselves. */
static EcfsPeerWhere ask_keeper (const EcfsPeerAsking *self, EcfsPeer *keeper, const EcfsPeerRequest *request,
                                 EcfsUuid *ret_from)
{
    EcfsPeerAnswer answer;
    EcfsPeers *peers = self->peers;
    if (keeper == NULL)
        return ecfs_peers_where (peers, request, ret_from);
    int64_t begun_us = ecfs_now_us ();
    bool good = call (self, keeper, request, &answer);
    ecfs_peers_note_answer (peers, ecfs_now_us () - begun_us);
    if (!good) {
        if (!answer.is_given_up)
            note_down (peers, keeper, &answer);
        return ECFS_PEER_UNKNOWN;
    }
    *ret_from = answer.from;
    return answer.status == 302 && !ecfs_uuid_is_nil (ret_from) ? ECFS_PEER_ELSEWHERE : ECFS_PEER_NOWHERE;
}

static EcfsPeerWhere ask_where (const EcfsPeerAsking *self, EcfsPeerVerb verb, const EcfsUuid *without,
                                EcfsUuid *ret_from)
{
    bool any;
    EcfsPeer *asked = keeper (self->peers, &self->look->look->cell, &any);
    const EcfsPeerRequest request = request_of (self, verb, without);
    *ret_from = (EcfsUuid){{0}};
    EcfsPeerWhere where = any ? ask_keeper (self, asked, &request, ret_from) : ECFS_PEER_UNKNOWN;
    if (where == ECFS_PEER_ELSEWHERE)
        atomic_store (&self->look->is_shared, true);
    return where;
}

/* What is to be thought of a call that brought nothing. */
static void note_failure (const EcfsPeerAsking *self, EcfsPeer *peer, const EcfsPeerAnswer *answer)
{
    if (answer->is_wrong)
        note_lie (self->peers, peer, &self->look->look->cell);
    else if (answer->is_given_up && answer->bytes > 0 && atomic_load (&self->look->is_late))
        note_slow (self->peers, peer);
    else if (answer->is_absent)
        note_empty (self->peers, peer);
    else if (!answer->is_given_up && answer->status == 0)
        note_down (self->peers, peer, answer);
}

/* Where many share a slow line, that goes on for as long as endpoints would take for them. */
static int64_t most_us (const EcfsPeerAsking *self)
{
    return MAX (MOST_US, MOST_TIMES * MIN (atomic_load (&self->look->endpoints_us), INT64_MAX / 8));
}

static int64_t patience_us (const EcfsPeerAsking *self)
{
    int64_t endpoints_us = MIN (atomic_load (&self->look->endpoints_us), PATIENCE_MOST_US);
    return CLAMP (MOST_TIMES * endpoints_us, PATIENCE_US, PATIENCE_MOST_US);
}

/* Gets it from one that has it, or is about to. */
static bool get (const EcfsPeerAsking *self, EcfsPeer *peer)
{
    EcfsPeers *peers = self->peers;
    uint64_t seen = 0;
    int64_t now_us = ecfs_now_us (), moved_us = now_us, begun_us = now_us;
    EcfsPeerRequest request = request_of (self, ECFS_PEER_GET, NULL);
    while (!is_over (self) && now_us - begun_us < most_us (self) && now_us - moved_us < patience_us (self)) {
        EcfsPeerAnswer answer;
        bool good = call (self, peer, &request, &answer);
        if (good && answer.status == 200) {
            note_bytes (peers, peer, answer.bytes);
            ecfs_peers_wait_on (peers);
            return true;
        }
        if (!good || answer.status != 202) {
            note_failure (self, peer, &answer);
            return false;
        }
        /* It is alive, and its reader goes around endpoints that stall. Where many share a slow line nothing may come
         * to it for a while, and would come to us no sooner. */
        now_us = ecfs_now_us ();
        atomic_store (&self->look->is_foretold, false);
        request.wait_ms = MIN (2 * request.wait_ms, MOST_WAIT_MS);
        atomic_store (&self->look->due_us,
                      now_us + ecfs_peers_silent_us (peers, self->look) + request.wait_ms * (int64_t) 1000);
        ecfs_peers_wait_on (peers);
        if (answer.progress <= seen)
            continue;
        seen = answer.progress;
        moved_us = now_us;
        ecfs_peers_pass_on (peers, &self->look->look->cell, seen);
    }
    if (now_us - begun_us >= most_us (self)) /* all that time something came to it, it says */
        note_empty (peers, peer);
    return false;
}

/* What a peer had when it was started anew is on no list. That it has it not tells nothing against it. */
static bool ask_all (const EcfsPeerAsking *self)
{
    EcfsPeers *peers = self->peers;
    EcfsPeerRequest request = request_of (self, ECFS_PEER_GET, NULL);
    request.wait_ms = 0;
    for (unsigned i = 0; i < ECFS_PEERS_MAX && !is_over (self); i++) {
        EcfsPeerAnswer answer;
        EcfsPeer *peer = &peers->list[i];
        ecfs_mutex_lock (&peers->lock);
        bool is_asked = i < peers->n && is_usable_locked (peer, ecfs_now_us ());
        ecfs_mutex_unlock (&peers->lock);
        if (!is_asked)
            continue;
        bool good = call (self, peer, &request, &answer);
        if (good && answer.status == 200) {
            note_bytes (peers, peer, answer.bytes);
            return true;
        }
        if (!good && !answer.is_absent)
            note_failure (self, peer, &answer);
    }
    return false;
}

static bool look_around (const EcfsPeerAsking *self)
{
    EcfsUuid without = {{0}};
    EcfsPeerVerb verb = self->look->wish == ECFS_PEER_OFFER ? ECFS_PEER_JOIN : ECFS_PEER_WHERE;
    await_greetings (self->peers);
    for (unsigned i = 0; i < ATTEMPTS && !is_over (self); i++) {
        EcfsUuid from;
        EcfsPeerWhere where = ask_where (self, verb, &without, &from);
        if (where == ECFS_PEER_NOWHERE || where == ECFS_PEER_HERE) {
            EcfsPeer *last = seeder (self->peers, &self->look->look->cell);
            if (last != NULL && get (self, last))
                return true;
            break;
        }
        EcfsPeer *peer = ecfs_uuid_is_nil (&from) ? NULL : peer_of (self->peers, &from);
        without = ecfs_uuid_is_nil (&from) ? without : from;
        if (peer != NULL && get (self, peer))
            return true;
    }
    return self->look->asks_all && ask_all (self);
}

/* A seeder gives what nobody has. */
static void claim (const EcfsPeerAsking *self)
{
    EcfsUuid from, nobody = {{0}};
    const EcfsCacheCell *cell = &self->look->look->cell;
    bool is_ours = !is_over (self) && atomic_load (&self->peers->serves) && seeder (self->peers, cell) == NULL &&
                   ask_where (self, ECFS_PEER_CLAIM, &nobody, &from) == ECFS_PEER_NOWHERE;
    atomic_store (&self->look->is_ours, is_ours);
}

void ecfs_peers_run_look (void *data)
{
    EcfsPeerAsking *self = data;
    EcfsPeers *peers = self->peers;
    EcfsPeerLook *look = self->look;
    ecfs_mutex_lock (&peers->lock);
    ecfs_peers_begun_locked (peers, look);
    ecfs_mutex_unlock (&peers->lock);
    bool claims = look->wish == ECFS_PEER_SHARE;
    if (claims)
        claim (self);
    bool found = !claims && !is_over (self) && look->look->begin (look->look) && look_around (self);
    g_free (self);
    ecfs_mutex_lock (&peers->lock);
    ecfs_peers_answered_locked (peers, &look->look->cell);
    ecfs_mutex_unlock (&peers->lock);
    look->look->done (look->look, found); /* the caller's from here on */
}
