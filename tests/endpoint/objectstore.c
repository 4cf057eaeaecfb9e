/*
 * A protocol of another kind than files, for tests: like an object store it has neither rename nor positional writes
 * (what is uploaded becomes visible whole at the end), and it drops an upload whose source is idle for too long.
 * objectstore:///PATH keeps its objects in a directory.
 */
#include "objectstore.h"

#include "endpoint/core/driver.h"
#include "util/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Upload {
    GByteArray *bytes;
    int64_t idle_since_us; /* 0: not idle */
} Upload;

typedef struct Store {
    EcfsSlot *slot;
    const char *root;
    GQueue uploads; /* EcfsStream with an Upload */
} Store;

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    return ecfs_url_path (spec->url, error);
}

static void *store_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    const char *root = ecfs_slot_config (slot);
    if (make_root && mkdir (root, 0700) != 0 && errno != EEXIST) {
        g_set_error (error, ECFS_ERROR, errno, "cannot make %s", root);
        return NULL;
    }
    if (!g_file_test (root, G_FILE_TEST_IS_DIR)) {
        g_set_error (error, ECFS_ERROR, ENOENT, "%s does not exist", root);
        return NULL;
    }
    Store *self = g_new0 (Store, 1);
    self->slot = slot;
    self->root = root;
    g_queue_init (&self->uploads);
    ecfs_slot_capabilities (slot, ECFS_CAN_SPACE | ECFS_CAN_LIST);
    return self;
}

/* An object becomes visible whole: a link that never replaces, or with @replace a rename. Returns 0 or an errno. */
static int put (const char *path, const void *bytes, size_t size, bool replace)
{
    g_autofree char *directory = g_path_get_dirname (path);
    g_autofree char *draft = g_strconcat (path, "~XXXXXX", NULL); /* "~" is in no valid name: never listed */
    if (g_mkdir_with_parents (directory, 0700) != 0)
        return errno;
    ecfs_autofd fd = g_mkstemp (draft);
    if (fd < 0)
        return errno;
    int code = -ecfs_write_all (fd, bytes, size);
    if (code == 0)
        code = (replace ? rename (draft, path) : link (draft, path)) == 0 ? 0 : errno;
    unlink (draft);
    return code;
}

static char *path_of (const Store *self, const EcfsStream *request)
{
    return g_build_filename (self->root, request->name != NULL ? request->name : ECFS_MARKER_NAME, NULL);
}

static void finish (EcfsStream *request, uint64_t value, int code)
{
    if (code == 0)
        ecfs_request_finish (request, value, NULL);
    else
        ecfs_request_fail (request, code, "%s: %s", request->name, g_strerror (code));
}

static void serve_read (Store *self, EcfsStream *request)
{
    g_autofree char *path = path_of (self, request);
    ecfs_autofd fd = open (path, O_RDONLY | O_CLOEXEC);
    int code = fd < 0 ? errno : 0;
    for (size_t i = 0; i < request->n_ranges && code == 0; i++) {
        const EcfsRange *range = &request->ranges[i];
        for (size_t filled = 0; filled < range->size && code == 0;) {
            size_t step = MIN (range->size - filled, 60000);
            ssize_t n = ecfs_pread_all (fd, range->to + filled, step, range->offset + filled);
            code = ecfs_request_cancelled (request) ? ECANCELED : n < 0 ? (int) -n : (size_t) n < step ? EBADMSG : 0;
            if (code == 0)
                ecfs_request_filled (request, i, filled += step);
        }
    }
    finish (request, 0, code);
}

static void upload_free (EcfsStream *request)
{
    Upload *upload = g_steal_pointer (&request->driver_data);
    g_byte_array_unref (upload->bytes);
    g_free (upload);
}

static void upload_end (Store *self, EcfsStream *request, int code)
{
    Upload *upload = request->driver_data;
    g_autofree char *path = path_of (self, request);
    if (code == 0)
        code = put (path, upload->bytes->data, upload->bytes->len, false);
    g_queue_remove (&self->uploads, request);
    upload_free (request);
    finish (request, 0, code);
}

static bool upload_step (Store *self, EcfsStream *request)
{
    Upload *upload = request->driver_data;
    const uint8_t *bytes;
    size_t size;
    switch (ecfs_request_pull (request, &bytes, &size)) {
    case ECFS_PULL_BYTES:
        upload->idle_since_us = 0;
        g_byte_array_append (upload->bytes, bytes, (unsigned) size);
        ecfs_request_acknowledge (request, upload->bytes->len);
        return true;
    case ECFS_PULL_LATER:
        if (upload->idle_since_us == 0)
            upload->idle_since_us = ecfs_now_us ();
        if (ecfs_now_us () - upload->idle_since_us < OBJECTSTORE_IDLE_US)
            return false;
        upload_end (self, request, ENOTCONN);
        return true;
    case ECFS_PULL_END:
        upload_end (self, request, 0);
        return true;
    case ECFS_PULL_ABORT:
        upload_end (self, request, ECANCELED);
        return true;
    }
    return false;
}

static void upload_begin (Store *self, EcfsStream *request)
{
    g_autofree char *path = path_of (self, request);
    if (g_file_test (path, G_FILE_TEST_EXISTS)) {
        finish (request, 0, EEXIST);
        return;
    }
    Upload *upload = g_new0 (Upload, 1);
    upload->bytes = g_byte_array_new ();
    request->driver_data = upload;
    g_queue_push_tail (&self->uploads, request);
}

static void list_below (EcfsStream *request, const char *path, const char *prefix)
{
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    const char *leaf;
    while (dir != NULL && (leaf = g_dir_read_name (dir)) != NULL) {
        g_autofree char *name = *prefix == '\0' ? g_strdup (leaf) : g_strconcat (prefix, "/", leaf, NULL);
        g_autofree char *inner = g_build_filename (path, leaf, NULL);
        struct stat status;
        if (lstat (inner, &status) == 0 && S_ISDIR (status.st_mode))
            list_below (request, inner, name);
        else
            ecfs_request_listed (request, name, (uint64_t) status.st_size, status.st_mtime);
    }
}

static void serve_marker (Store *self, EcfsStream *request)
{
    g_autofree char *path = path_of (self, request);
    g_autofree char *text = NULL;
    size_t size = 0;
    g_autoptr (GError) error = NULL;
    bool there = ecfs_read_file (path, 16 * ECFS_MARKER_MAX_SIZE, &text, &size, &error);
    if (request->kind == ECFS_REQUEST_EXAMINE && there)
        ecfs_request_finish_marker (request, text, size);
    else if (request->kind == ECFS_REQUEST_EXAMINE)
        finish (request, 0, ecfs_errno (error));
    else if (request->create && there)
        ecfs_request_fail_marked (request, text, size);
    else
        finish (request, 0, put (path, request->text, strlen (request->text), true));
}

static void begin (Store *self, EcfsStream *request)
{
    g_autofree char *path = path_of (self, request);
    struct stat status;
    switch (request->kind) {
    case ECFS_REQUEST_READ:
        serve_read (self, request);
        break;
    case ECFS_REQUEST_WRITE:
        upload_begin (self, request);
        break;
    case ECFS_REQUEST_REMOVE:
        finish (request, 0, unlink (path) == 0 ? 0 : errno);
        break;
    case ECFS_REQUEST_RMDIR:
        finish (request, 0, rmdir (path) == 0 ? 0 : errno);
        break;
    case ECFS_REQUEST_SIZE:
        if (stat (path, &status) == 0)
            finish (request, (uint64_t) status.st_size, 0);
        else
            finish (request, 0, errno);
        break;
    case ECFS_REQUEST_SPACE:
        ecfs_request_finish_space (request, UINT64_C (1) << 40, NULL);
        break;
    case ECFS_REQUEST_LIST:
        list_below (request, path, request->name);
        finish (request, 0, 0);
        break;
    case ECFS_REQUEST_MARK:
    case ECFS_REQUEST_EXAMINE:
        serve_marker (self, request);
        break;
    case ECFS_REQUEST_LOG:
    case ECFS_REQUEST_RENEW:
        g_assert_not_reached (); /* it takes none */
    }
}

static bool store_serve (EcfsSlot *slot, void *connection, GError **error)
{
    Store *self = connection;
    while (ecfs_slot_check (slot, error) && g_file_test (self->root, G_FILE_TEST_IS_DIR)) {
        EcfsStream *request = ecfs_slot_take (slot);
        if (request != NULL)
            begin (self, request);
        bool moved = request != NULL;
        for (GList *at = self->uploads.head, *next; at != NULL; at = next) {
            next = at->next;
            moved |= upload_step (self, at->data);
        }
        if (!moved)
            (void) ecfs_slot_wait (slot, ecfs_now_us () + OBJECTSTORE_IDLE_US / 4);
    }
    EcfsStream *request;
    while ((request = g_queue_pop_head (&self->uploads)) != NULL)
        upload_free (request);
    if (error != NULL && *error == NULL)
        g_set_error (error, ECFS_ERROR, ENOTCONN, "%s has gone", self->root);
    return false;
}

void objectstore_register (void)
{
    static const char *const keys[] = {ECFS_COMMON_OPTION_KEYS, NULL};
    static const EcfsDriver driver = {
        .scheme = "objectstore",
        .option_keys = keys,
        .default_connections = 2,
        .new_config = new_config,
        .free_config = g_free,
        .connect = store_connect,
        .serve = store_serve,
        .disconnect = g_free,
    };
    ecfs_endpoint_register_for_tests (&driver);
}
