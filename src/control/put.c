/* The serving side of the conversation of `put`: control_priv.h tells its steps. */
#include "control/control_priv.h"
#include "util/io.h"
#include "util/lock.h"
#include "verbs/put_store.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_ON_THE_WAY 64 /* files; who sends more does not wait for answers */
#define TICK_MS        250

typedef struct Session {
    const EcfsControlClient *put;
    EcfsLines *lines;
    EcfsPutStore *store;
    unsigned n_on_the_way;
    uint64_t wire_told;
    bool ended;
} Session;

/* The bytes in a member, g_free (); NULL with an error when there are none. */
static char *bytes_of (JsonObject *step, const char *member, GError **error)
{
    const char *text = ecfs_control_text (step, member);
    char *bytes = text == NULL ? NULL : ecfs_control_unescape (text);
    return bytes != NULL || ecfs_fail (error, EINVAL, "control socket: \"%s\" is missing or wrong", member) ? bytes
                                                                                                            : NULL;
}

static uint64_t ino_of (JsonObject *step, const char *member)
{
    return (uint64_t) MAX (ecfs_control_number (step, member), 0);
}

/* Steps that are answered at once */

static bool do_resolve (Session *self, JsonObject *step, JsonObject *reply, GError **error)
{
    EcfsPutPlace place = {0};
    g_autofree char *path = bytes_of (step, "path", error);
    if (path == NULL ||
        !self->store->ops->resolve (self->store, path, ecfs_control_flag (step, "directory"), &place, error))
        return false;
    json_object_set_int_member (reply, "parent", (int64_t) place.parent);
    g_autofree char *name = place.name == NULL ? NULL : ecfs_control_escape (place.name);
    if (name != NULL)
        json_object_set_string_member (reply, "name", name);
    g_free (place.name);
    return true;
}

static bool do_directory (Session *self, JsonObject *step, JsonObject *reply, GError **error)
{
    struct stat st;
    uint64_t ino;
    g_autofree char *name = bytes_of (step, "name", error);
    ecfs_control_get_attributes (step, &st);
    if (name == NULL || !self->store->ops->directory (self->store, ino_of (step, "parent"), name, &st, &ino, error))
        return false;
    json_object_set_int_member (reply, "ino", (int64_t) ino);
    return true;
}

static bool do_dress (Session *self, JsonObject *step, JsonObject *reply, GError **error)
{
    struct stat st;
    (void) reply; /* nothing to tell */
    ecfs_autofd fd = ecfs_lines_take_fd (self->lines);
    ecfs_control_get_attributes (step, &st);
    return (fd >= 0 || ecfs_fail (error, EINVAL, "control socket: a directory came without its descriptor")) &&
           self->store->ops->dress (self->store, ino_of (step, "ino"), fd, &st, error);
}

static bool do_special (Session *self, JsonObject *step, JsonObject *reply, GError **error)
{
    struct stat st;
    (void) reply; /* nothing to tell */
    ecfs_control_get_attributes (step, &st);
    g_autofree char *name = bytes_of (step, "name", error);
    g_autofree char *target = name != NULL && S_ISLNK (st.st_mode) ? bytes_of (step, "target", error) : NULL;
    if (name == NULL || (S_ISLNK (st.st_mode) && target == NULL))
        return false;
    bool is_special = !S_ISREG (st.st_mode) && !S_ISDIR (st.st_mode);
    return (is_special || ecfs_fail (error, EINVAL, "control socket: mode %o is none of a name alone", st.st_mode)) &&
           self->store->ops->special (self->store, ino_of (step, "parent"), name, &st, target, error);
}

static bool do_link (Session *self, JsonObject *step, JsonObject *reply, GError **error)
{
    (void) reply; /* nothing to tell */
    g_autofree char *name = bytes_of (step, "name", error);
    return name != NULL &&
           self->store->ops->link (self->store, ino_of (step, "ino"), ino_of (step, "parent"), name, error);
}

static bool do_end (Session *self, JsonObject *step, JsonObject *reply, GError **error)
{
    (void) step;  /* it asks for nothing in particular */
    (void) reply; /* nothing to tell */
    return self->store->ops->finish (self->store, error);
}

static const struct {
    const char *name;
    bool (*handle) (Session *self, JsonObject *step, JsonObject *reply, GError **error);
} steps[] = {{"resolve", do_resolve}, {"directory", do_directory}, {"dress", do_dress},
             {"special", do_special}, {"link", do_link},           {"end", do_end}};

static void answer (Session *self, JsonObject *reply)
{
    self->ended = self->ended || !ecfs_lines_send_object (self->lines, reply, -1, NULL); /* who hung up cancels */
}

static void serve_step (Session *self, const char *name, JsonObject *step)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonObject) reply = json_object_new ();
    size_t i = 0;
    while (i < G_N_ELEMENTS (steps) && g_strcmp0 (steps[i].name, name) != 0)
        i++;
    if (i < G_N_ELEMENTS (steps))
        (void) steps[i].handle (self, step, reply, &error); /* told by the error */
    else
        (void) !ecfs_fail (&error, EINVAL, "control socket: unknown step %s", name != NULL ? name : "(none)");
    ecfs_control_put_end (reply, error);
    answer (self, reply);
}

/* Files */

static void answer_file (Session *self, EcfsPutFile *file)
{
    g_autoptr (JsonObject) reply = json_object_new ();
    json_object_set_int_member (reply, "file", GPOINTER_TO_INT (file->user));
    json_object_set_int_member (reply, "ino", (int64_t) file->ino);
    json_object_set_boolean_member (reply, "full", file->full);
    g_autofree char *warning = file->warning == NULL ? NULL : g_utf8_make_valid (file->warning->message, -1);
    if (warning != NULL)
        json_object_set_string_member (reply, "warning", warning);
    if (file->error != NULL)
        ecfs_control_put_error (reply, file->error);
    answer (self, reply);
    ecfs_put_file_free (file);
}

/* The descriptor is anybody's: what is read must be a file, which reading it does not wait for. */
static bool check_content (const EcfsPutFile *file, GError **error)
{
    struct stat st;
    if (file->fd < 0 || file->name == NULL)
        return ecfs_fail (error, EINVAL, "control socket: a file came without its name or descriptor");
    if (fstat (file->fd, &st) != 0 || !S_ISREG (st.st_mode) || !S_ISREG (file->st.st_mode) || file->st.st_size < 0)
        return ecfs_fail (error, EINVAL, "control socket: the descriptor is not that of a regular file");
    return true;
}

static void begin_file (Session *self, JsonObject *step, bool fills)
{
    struct stat st;
    g_autofree char *name = bytes_of (step, "name", NULL);
    ecfs_control_get_attributes (step, &st);
    EcfsPutFile *file = ecfs_put_file_new (ecfs_lines_take_fd (self->lines), &st, ino_of (step, "parent"), name);
    file->is_fixed = ecfs_control_flag (step, "fixed");
    file->fills = fills;
    file->ino = fills ? ino_of (step, "ino") : 0;
    file->user = GINT_TO_POINTER ((int) ecfs_control_number (step, "id"));
    bool good = check_content (file, &file->error) &&
                (self->n_on_the_way < MAX_ON_THE_WAY ||
                 ecfs_fail (&file->error, EAGAIN, "control socket: too many files at once"));
    if (!good) {
        answer_file (self, file);
        return;
    }
    self->n_on_the_way++;
    self->store->ops->file (self->store, file);
}

static void collect (Session *self, int64_t deadline_us)
{
    GQueue ended = G_QUEUE_INIT;
    self->store->ops->collect (self->store, deadline_us, &ended);
    EcfsPutFile *file;
    while ((file = g_queue_pop_head (&ended)) != NULL) {
        self->n_on_the_way--;
        answer_file (self, file);
    }
}

/* The conversation */

static void serve_line (Session *self, const char *line)
{
    g_autoptr (JsonNode) node = ecfs_control_parse (line, NULL);
    if (node == NULL) {
        self->ended = true; /* whatever this is, it does not know what we talk about */
        return;
    }
    JsonObject *step = json_node_get_object (node);
    const char *name = ecfs_control_text (step, "step");
    if (g_strcmp0 (name, "file") == 0)
        begin_file (self, step, false);
    else if (g_strcmp0 (name, "fill") == 0)
        begin_file (self, step, true);
    else if (g_strcmp0 (name, "cancel") == 0)
        self->store->ops->cancel (self->store);
    else
        serve_step (self, name, step);
}

static void tell_wire (Session *self)
{
    uint64_t bytes = self->store->ops->wire_bytes (self->store);
    if (bytes == self->wire_told)
        return;
    self->wire_told = bytes;
    g_autoptr (JsonObject) line = json_object_new ();
    json_object_set_int_member (line, "wire", (int64_t) bytes);
    answer (self, line);
}

static void serve_received (Session *self)
{
    char *line;
    while (!self->ended && (line = ecfs_lines_take (self->lines)) != NULL) {
        serve_line (self, line);
        g_free (line);
    }
}

static void converse (Session *self, int wake_fd)
{
    serve_received (self); /* what came with the request */
    while (!self->ended && !self->put->is_stopping (self->put->user)) {
        struct pollfd wait[2] = {{.fd = self->lines->fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
        int ready = poll (wait, 2, TICK_MS);
        eventfd_t count;
        if (ready > 0 && wait[1].revents != 0)
            (void) eventfd_read (wake_fd, &count); /* what it counts is collected */
        collect (self, 0);
        if (ready == 0)
            tell_wire (self);
        if (ready > 0 && wait[0].revents != 0)
            self->ended = !ecfs_lines_receive (self->lines, ECFS_CONTROL_MAX_SIZE, NULL);
        serve_received (self);
    }
}

static EcfsPutStore *open_store (const EcfsControlClient *put, JsonObject *request, int wake_fd, GError **error)
{
    const EcfsPutHere options = {.code = ecfs_control_text (request, "code"),
                                 .keeps_owners = put->peer.uid == 0,
                                 .uid = put->peer.uid,
                                 .gid = put->peer.gid,
                                 .renamed = put->ops->names.renamed,
                                 .changed = put->ops->names.changed,
                                 .user = put->ops->names.user,
                                 .wake_fd = wake_fd};
    if (wake_fd < 0 && !ecfs_fail (error, EMFILE, "control socket: no descriptor is left"))
        return NULL;
    return ecfs_put_here_new (put->archive, &options, error);
}

void ecfs_control_put (const EcfsControlClient *put, EcfsLines *lines, JsonObject *request)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonObject) reply = json_object_new ();
    ecfs_autofd wake_fd = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
    Session self = {.put = put, .lines = lines, .store = open_store (put, request, wake_fd, &error)};
    if (self.store == NULL) {
        ecfs_control_put_error (reply, error);
        answer (&self, reply);
        return;
    }
    json_object_set_boolean_member (reply, "ok", TRUE);
    answer (&self, reply);
    converse (&self, wake_fd);
    self.store->ops->cancel (self.store);
    while (self.n_on_the_way > 0)
        collect (&self, ecfs_now_us () + TICK_MS * 1000);
    self.store->ops->free (self.store);
}
