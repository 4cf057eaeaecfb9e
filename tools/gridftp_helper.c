/*
 * ecfs-gridftp-helper: one connection to a GridFTP server, for the endpoint driver that started it.
 *
 * The Globus libraries take credentials and trusted authorities from the environment of the process, so endpoints that
 * differ in these need processes that do; and a transfer that the library cannot end is ended with the process. There
 * is one thread: Globus calls back from globus_callback_poll (), which also reads the driver's messages. gridftp_wire.h
 * says what these are.
 *
 * What is said to servers of sshftp:// goes through ssh, which Globus has a script of its own start. That script takes
 * neither keys nor known hosts, so execv () is ours: where the library runs the script, ssh runs as the driver wants.
 */
#include "endpoint/gridftp/gridftp_wire.h"

#include <globus_common.h>
#include <globus_error_gssapi.h>
#include <globus_ftp_client.h>
#include <globus_xio.h>
#include <globus_xio_tcp_driver.h>

#include <errno.h>
#include <glib.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum Phase {
    IDLE,
    BUSY,    /* Globus owes the completion of an operation */
    ABORTED, /* the same, and it was told to end */
} Phase;

typedef struct Options {
    char *protection; /* of the data channel: clear, safe, private */
    gboolean no_data_authentication;
    gboolean extended; /* blocks with offsets, over connections that are kept */
    int streams;
    int tcp_buffer; /* bytes; 0: the system's choice */
    char *subject;  /* the server's, where it is not of its host name */
    char *user;
    char *password_file;
    gboolean gsi;
    char **ssh; /* the words of the program that carries what is said; NULL: none does */
} Options;

typedef struct Helper {
    Options options;
    globus_xio_handle_t driver; /* our end of the socket */
    EcfsGridftpMessage head;
    char text[ECFS_GRIDFTP_TEXT_MAX + 1];
    globus_byte_t *memory;
    globus_ftp_client_handle_t ftp;
    globus_ftp_client_handleattr_t handle_attr;
    globus_ftp_client_operationattr_t attr;
    Phase phase;
    EcfsGridftpType doing;
    bool stale;   /* the connection is not to be used again */
    bool reading; /* blocks are to be filled: no end was seen */

    /* Servers of plain FTP send from an offset to the end, and are told when it is enough. */
    bool knows_no_eret; /* the server said so */
    bool restarted;     /* the GET under way is from an offset to the end */
    bool has_enough;    /* of it, and it was told to end */
    uint64_t get_from, get_to;
    globus_ftp_client_restart_marker_t from; /* of the operation under way */
    bool sizing;                             /* SIZE is asked what MLST did not say */
    globus_off_t size;

    globus_byte_t *facts;
    globus_size_t facts_bytes;
} Helper;

static void await_message (Helper *self);

/* What carries sshftp://; set before there is a child. */
static char **ssh_words;
static int ssh_errors = -1;

#define SSH_SCRIPT "/gridftp-ssh"

/* The library's popen driver calls this one in its child. */
int execv (const char *path, char *const *words)
{
    if (ssh_words != NULL && g_str_has_suffix (path, SSH_SCRIPT)) {
        (void) dup2 (ssh_errors, STDERR_FILENO);
        execvp (ssh_words[0], ssh_words);
        return -1;
    }
    return (int) syscall (SYS_execve, path, words, environ);
}

/* What ssh complained of since this was asked last, or NULL. */
static char *ssh_complaint (void)
{
    char text[ECFS_GRIDFTP_TEXT_MAX];
    ssize_t size = ssh_errors < 0 ? 0 : pread (ssh_errors, text, sizeof text, 0);
    if (size <= 0)
        return NULL;
    (void) !ftruncate (ssh_errors, 0);
    (void) lseek (ssh_errors, 0, SEEK_SET);
    return g_strndup (text, (size_t) size);
}

/* Sending */

static void send_all (const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = send (STDIN_FILENO, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd poll_fd = {.fd = STDIN_FILENO, .events = POLLOUT};
            (void) poll (&poll_fd, 1, -1);
            continue;
        }
        if (n < 0 && errno != EINTR)
            _exit (EXIT_SUCCESS); /* the driver is gone */
        if (n > 0) {
            at += n;
            size -= (size_t) n;
        }
    }
}

static void tell (const EcfsGridftpMessage *message, const void *text)
{
    send_all (message, sizeof *message);
    send_all (text, message->text_bytes);
}

static void tell_done (Helper *self, unsigned code, const void *text, size_t size)
{
    EcfsGridftpMessage message = {.type = ECFS_GRIDFTP_DONE, .code = code};
    message.text_bytes = (uint32_t) MIN (size, ECFS_GRIDFTP_TEXT_MAX);
    self->phase = IDLE;
    tell (&message, text);
}

static void tell_failure (Helper *self, globus_object_t *error, unsigned code)
{
    char *text = globus_error_print_friendly (error);
    g_autofree char *complaint = code == ECFS_GRIDFTP_LOST ? ssh_complaint () : NULL;
    const char *said = complaint != NULL ? complaint : text != NULL ? text : "unknown error";
    tell_done (self, code, said, strlen (said));
    globus_libc_free (text);
}

static unsigned code_of (const Helper *self, globus_object_t *error)
{
    int code = globus_error_ftp_error_get_code (error);
    if (self->phase == ABORTED)
        return ECFS_GRIDFTP_BELOW;
    return code >= 400 && code < 600 ? (unsigned) code : ECFS_GRIDFTP_LOST;
}

static bool moves_data (const Helper *self)
{
    return self->doing == ECFS_GRIDFTP_GET || self->doing == ECFS_GRIDFTP_PUT || self->doing == ECFS_GRIDFTP_LIST;
}

static bool get_again (Helper *self);
static bool ask_size (Helper *self);

/* ProFTPD says of what is missing that it "cannot be listed", which may mean anything: its SIZE says more. */
static bool is_vague (const Helper *self, globus_object_t *error, unsigned code)
{
    if (self->doing != ECFS_GRIDFTP_FACTS || self->sizing || self->options.gsi || code != 550)
        return false;
    char *text = globus_error_print_friendly (error);
    bool vague = text != NULL && strstr (text, "cannot be listed") != NULL;
    globus_libc_free (text);
    return vague;
}

/* Whether the server does not know how to send a part of a file. */
static bool refuses_eret (const Helper *self, unsigned code)
{
    return self->doing == ECFS_GRIDFTP_GET && !self->restarted && !self->options.extended && code >= 500 && code <= 504;
}

/* What is no failure of a GET from an offset to the end: it was told to end, or there is nothing from there on. */
static bool ends_well (const Helper *self, unsigned code)
{
    return self->restarted && self->phase == BUSY && (self->has_enough || code == 551 || code == 554);
}

static void on_complete (void *user, globus_ftp_client_handle_t *ftp, globus_object_t *error)
{
    Helper *self = user;
    self->reading = false;
    (void) ftp;
    unsigned code = error != NULL ? code_of (self, error) : ECFS_GRIDFTP_OK;
    if (error != NULL && refuses_eret (self, code) && get_again (self))
        return;
    if (error != NULL && is_vague (self, error, code) && ask_size (self))
        return;
    if (error == NULL && self->sizing) {
        static const char words[] = "550 it has a size, but cannot be listed";
        tell_done (self, 550, words, strlen (words));
        return;
    }
    if (error != NULL && ends_well (self, code)) {
        self->stale = self->has_enough; /* servers differ in what they say of an end on request */
        tell_done (self, ECFS_GRIDFTP_OK, NULL, 0);
        return;
    }
    self->stale = code == ECFS_GRIDFTP_LOST || (error != NULL && self->options.extended && moves_data (self));
    if (error != NULL)
        tell_failure (self, error, code);
    else
        tell_done (self, ECFS_GRIDFTP_OK, self->facts, self->facts != NULL ? self->facts_bytes : 0);
    g_clear_pointer (&self->facts, globus_libc_free);
}

/* Contents */

static globus_byte_t *block_at (const Helper *self, uint32_t block)
{
    return self->memory + (size_t) block * ECFS_GRIDFTP_BLOCK_BYTES;
}

static uint32_t block_of (const Helper *self, const globus_byte_t *bytes)
{
    return (uint32_t) ((size_t) (bytes - self->memory) / ECFS_GRIDFTP_BLOCK_BYTES);
}

static void on_read (void *user, globus_ftp_client_handle_t *ftp, globus_object_t *error, globus_byte_t *bytes,
                     globus_size_t size, globus_off_t offset, globus_bool_t eof)
{
    Helper *self = user;
    (void) ftp;
    if (eof || error != NULL)
        self->reading = false;
    if (error != NULL || size == 0 || self->has_enough)
        return;
    EcfsGridftpMessage message = {
        .type = ECFS_GRIDFTP_BLOCK, .block = block_of (self, bytes), .offset = (uint64_t) offset, .length = size};
    if (self->restarted && message.offset + size >= self->get_to) {
        message.length = self->get_to - MIN (message.offset, self->get_to);
        self->has_enough = true;
        self->reading = false;
    }
    tell (&message, NULL);
    if (self->has_enough && !eof)
        (void) globus_ftp_client_abort (&self->ftp); /* where it cannot, it is over in a moment anyway */
}

static void read_into (Helper *self, uint32_t block)
{
    /* What cannot be registered any more was the end of the operation, whose completion tells. */
    if (self->reading && globus_ftp_client_register_read (&self->ftp, block_at (self, block), ECFS_GRIDFTP_BLOCK_BYTES,
                                                          on_read, self) != GLOBUS_SUCCESS)
        self->reading = false;
}

static void on_written (void *user, globus_ftp_client_handle_t *ftp, globus_object_t *error, globus_byte_t *bytes,
                        globus_size_t size, globus_off_t offset, globus_bool_t eof)
{
    Helper *self = user;
    (void) ftp;
    (void) offset;
    (void) eof;
    if (error != NULL)
        return;
    EcfsGridftpMessage message = {.type = ECFS_GRIDFTP_RETURN, .block = block_of (self, bytes), .length = size};
    tell (&message, NULL);
}

static void write_from (Helper *self, const EcfsGridftpMessage *message)
{
    if (self->phase != BUSY || self->doing != ECFS_GRIDFTP_PUT)
        return; /* it has ended early, and the driver will learn of it */
    (void) globus_ftp_client_register_write (&self->ftp, block_at (self, message->block), message->length,
                                             (globus_off_t) message->offset, message->end != 0, on_written, self);
}

/* Operations */

/* REST instead of ERET and ESTO, which only servers of GridFTP know. */
static globus_ftp_client_restart_marker_t *from_offset (Helper *self, uint64_t offset)
{
    globus_ftp_client_restart_marker_init (&self->from);
    if (offset == 0)
        return NULL;
    globus_ftp_client_restart_marker_set_offset (&self->from, (globus_off_t) offset);
    return &self->from;
}

static globus_result_t get_to_the_end (Helper *self)
{
    self->restarted = true;
    return globus_ftp_client_get (&self->ftp, self->text, &self->attr, from_offset (self, self->get_from), on_complete,
                                  self);
}

static globus_result_t begin_get (Helper *self, const char *url, const EcfsGridftpMessage *message)
{
    bool all = message->length == ECFS_GRIDFTP_TO_THE_END;
    self->get_from = message->offset;
    self->get_to = all ? UINT64_MAX : message->offset + message->length;
    if (self->knows_no_eret)
        return get_to_the_end (self);
    return globus_ftp_client_partial_get (&self->ftp, url, &self->attr, NULL, (globus_off_t) message->offset,
                                          all ? -1 : (globus_off_t) (message->offset + message->length), on_complete,
                                          self);
}

static globus_result_t begin_put (Helper *self, const char *url, const EcfsGridftpMessage *message)
{
    bool plain = !self->options.gsi && self->options.ssh == NULL;
    if (message->offset == 0 || plain)
        return globus_ftp_client_put (&self->ftp, url, &self->attr, from_offset (self, message->offset), on_complete,
                                      self);
    return globus_ftp_client_partial_put (&self->ftp, url, &self->attr, NULL, (globus_off_t) message->offset, -1,
                                          on_complete, self);
}

static globus_result_t begin (Helper *self, const EcfsGridftpMessage *message)
{
    const char *url = self->text;
    switch (self->doing) {
    case ECFS_GRIDFTP_GET:
        return begin_get (self, url, message);
    case ECFS_GRIDFTP_LIST:
        return globus_ftp_client_machine_list (&self->ftp, url, &self->attr, on_complete, self);
    case ECFS_GRIDFTP_PUT:
        return begin_put (self, url, message);
    case ECFS_GRIDFTP_FACTS:
        return globus_ftp_client_mlst (&self->ftp, url, &self->attr, &self->facts, &self->facts_bytes, on_complete,
                                       self);
    case ECFS_GRIDFTP_REMOVE:
        return globus_ftp_client_delete (&self->ftp, url, &self->attr, on_complete, self);
    case ECFS_GRIDFTP_MAKE:
        return globus_ftp_client_mkdir (&self->ftp, url, &self->attr, on_complete, self);
    case ECFS_GRIDFTP_UNMAKE:
        return globus_ftp_client_rmdir (&self->ftp, url, &self->attr, on_complete, self);
    default:
        return globus_ftp_client_move (&self->ftp, url, url + strlen (url) + 1, &self->attr, on_complete, self);
    }
}

static void start_reading (Helper *self)
{
    self->reading = true;
    for (uint32_t i = 0; i < ECFS_GRIDFTP_N_BLOCKS && self->reading; i++)
        read_into (self, i);
}

/* The GET that the server did not understand, in words that every server knows. */
static bool get_again (Helper *self)
{
    self->knows_no_eret = true;
    if (get_to_the_end (self) != GLOBUS_SUCCESS)
        return false;
    start_reading (self);
    return true;
}

static bool ask_size (Helper *self)
{
    self->sizing = true;
    return globus_ftp_client_size (&self->ftp, self->text, &self->attr, &self->size, on_complete, self) ==
           GLOBUS_SUCCESS;
}

static void operate (Helper *self, const EcfsGridftpMessage *message)
{
    /* A connection that was lost stays in the library's cache. Where data connections are kept, Globus 9.8 loses its
     * way after a transfer that failed: the next one fails too
     * ("transfer handle does not exist"), whatever it is. A new connection helps. */
    if (self->stale)
        (void) globus_ftp_client_handle_flush_url_state (&self->ftp, self->text);
    self->stale = self->restarted = self->has_enough = self->sizing = false;
    self->doing = (EcfsGridftpType) message->type;
    self->phase = BUSY;
    globus_result_t result = begin (self, message);
    if (result != GLOBUS_SUCCESS) {
        globus_object_t *error = globus_error_get (result);
        tell_failure (self, error, ECFS_GRIDFTP_BELOW);
        globus_object_free (error);
        return;
    }
    if (self->doing == ECFS_GRIDFTP_GET || self->doing == ECFS_GRIDFTP_LIST)
        start_reading (self);
}

static void abort_operation (Helper *self)
{
    if (self->phase != BUSY)
        return;
    self->phase = ABORTED;
    self->reading = false;
    (void) globus_ftp_client_abort (&self->ftp); /* where it cannot, it is over in a moment anyway */
}

/* Receiving */

static void obey (Helper *self)
{
    const EcfsGridftpMessage *message = &self->head;
    self->text[message->text_bytes] = '\0';
    if (message->block >= ECFS_GRIDFTP_N_BLOCKS ||
        (message->type == ECFS_GRIDFTP_BLOCK && message->length > ECFS_GRIDFTP_BLOCK_BYTES))
        _exit (EXIT_FAILURE);
    if (message->type == ECFS_GRIDFTP_ABORT)
        abort_operation (self);
    else if (message->type == ECFS_GRIDFTP_BLOCK)
        write_from (self, message);
    else if (message->type == ECFS_GRIDFTP_RETURN)
        read_into (self, message->block);
    else if (self->phase == IDLE)
        operate (self, message);
    else
        _exit (EXIT_FAILURE);
}

static void on_text (globus_xio_handle_t handle, globus_result_t result, globus_byte_t *bytes, globus_size_t size,
                     globus_size_t n, globus_xio_data_descriptor_t descriptor, void *user)
{
    (void) handle, (void) bytes, (void) size, (void) n, (void) descriptor;
    if (result != GLOBUS_SUCCESS)
        _exit (EXIT_SUCCESS); /* the driver is gone */
    obey (user);
    await_message (user);
}

static void on_head (globus_xio_handle_t handle, globus_result_t result, globus_byte_t *bytes, globus_size_t size,
                     globus_size_t n, globus_xio_data_descriptor_t descriptor, void *user)
{
    Helper *self = user;
    (void) bytes, (void) size, (void) n, (void) descriptor;
    if (result != GLOBUS_SUCCESS || self->head.text_bytes > ECFS_GRIDFTP_TEXT_MAX)
        _exit (EXIT_SUCCESS);
    if (self->head.text_bytes > 0) {
        if (globus_xio_register_read (handle, (globus_byte_t *) self->text, self->head.text_bytes,
                                      self->head.text_bytes, NULL, on_text, self) != GLOBUS_SUCCESS)
            _exit (EXIT_FAILURE);
        return;
    }
    obey (self);
    await_message (self);
}

static void await_message (Helper *self)
{
    if (globus_xio_register_read (self->driver, (globus_byte_t *) &self->head, sizeof self->head, sizeof self->head,
                                  NULL, on_head, self) != GLOBUS_SUCCESS)
        _exit (EXIT_FAILURE);
}

/* Setting up */

static void must (globus_result_t result, const char *what)
{
    if (result == GLOBUS_SUCCESS)
        return;
    char *text = globus_error_print_friendly (globus_error_peek (result));
    g_printerr ("ecfs-gridftp-helper: %s: %s\n", what, text);
    exit (EXIT_FAILURE);
}

static void set_up_socket (Helper *self)
{
    globus_xio_driver_t tcp;
    globus_xio_stack_t stack;
    globus_xio_attr_t attr;
    must (globus_xio_driver_load ("tcp", &tcp), "tcp");
    must (globus_xio_stack_init (&stack, NULL), "stack");
    must (globus_xio_stack_push_driver (stack, tcp), "stack");
    must (globus_xio_attr_init (&attr), "attributes");
    must (globus_xio_attr_cntl (attr, tcp, GLOBUS_XIO_TCP_SET_HANDLE, STDIN_FILENO), "socket");
    must (globus_xio_handle_create (&self->driver, stack), "socket");
    must (globus_xio_open (self->driver, NULL, attr), "socket");
    globus_xio_attr_destroy (attr);
    globus_xio_stack_destroy (stack);
}

static void set_up_data_channel (Helper *self)
{
    const Options *options = &self->options;
    globus_ftp_control_dcau_t authentication = {.mode = options->no_data_authentication ? GLOBUS_FTP_CONTROL_DCAU_NONE
                                                                                        : GLOBUS_FTP_CONTROL_DCAU_SELF};
    must (globus_ftp_client_operationattr_set_dcau (&self->attr, &authentication), "data channel authentication");
    if (options->no_data_authentication)
        return;
    globus_ftp_control_protection_t protection = GLOBUS_FTP_CONTROL_PROTECTION_CLEAR;
    if (g_strcmp0 (options->protection, "safe") == 0)
        protection = GLOBUS_FTP_CONTROL_PROTECTION_SAFE;
    else if (g_strcmp0 (options->protection, "private") == 0)
        protection = GLOBUS_FTP_CONTROL_PROTECTION_PRIVATE;
    must (globus_ftp_client_operationattr_set_data_protection (&self->attr, protection), "protection");
}

static void set_up_streams (Helper *self)
{
    const Options *options = &self->options;
    if (options->extended) {
        must (globus_ftp_client_operationattr_set_mode (&self->attr, GLOBUS_FTP_CONTROL_MODE_EXTENDED_BLOCK), "mode");
        globus_ftp_control_parallelism_t parallelism = {
            .fixed = {.mode = GLOBUS_FTP_CONTROL_PARALLELISM_FIXED, .size = (globus_size_t) options->streams}};
        must (globus_ftp_client_operationattr_set_parallelism (&self->attr, &parallelism), "streams");
    }
    if (options->tcp_buffer > 0) {
        globus_ftp_control_tcpbuffer_t buffer = {
            .fixed = {.mode = GLOBUS_FTP_CONTROL_TCPBUFFER_FIXED, .size = options->tcp_buffer}};
        must (globus_ftp_client_operationattr_set_tcp_buffer (&self->attr, &buffer), "TCP buffer");
    }
}

static void set_up_login (Helper *self)
{
    const Options *options = &self->options;
    g_autofree char *password = NULL;
    if (options->gsi) {
        must (globus_ftp_client_operationattr_set_authorization (
                  &self->attr, GSS_C_NO_CREDENTIAL, options->user != NULL ? options->user : ":globus-mapping:", "user@",
                  NULL, options->subject),
              "login");
        return;
    }
    if (options->password_file != NULL) {
        g_autoptr (GError) error = NULL;
        if (!g_file_get_contents (options->password_file, &password, NULL, &error)) {
            g_printerr ("ecfs-gridftp-helper: %s\n", error->message);
            exit (EXIT_FAILURE);
        }
        password[strcspn (password, "\r\n")] = '\0';
    }
    must (globus_ftp_client_operationattr_set_authorization (&self->attr, GSS_C_NO_CREDENTIAL,
                                                             options->user != NULL ? options->user : "anonymous",
                                                             password != NULL ? password : "ecfs@", NULL, NULL),
          "login");
}

static void set_up_ftp (Helper *self)
{
    must (globus_ftp_client_handleattr_init (&self->handle_attr), "handle");
    must (globus_ftp_client_handleattr_set_cache_all (&self->handle_attr, GLOBUS_TRUE), "connection cache");
    must (globus_ftp_client_handle_init (&self->ftp, &self->handle_attr), "handle");
    must (globus_ftp_client_operationattr_init (&self->attr), "attributes");
    must (globus_ftp_client_operationattr_set_type (&self->attr, GLOBUS_FTP_CONTROL_TYPE_IMAGE), "type");
    /* The answer to EPSV has no address, and over ssh there is none to take instead. */
    must (globus_ftp_client_operationattr_set_allow_ipv6 (&self->attr, self->options.ssh == NULL), "IPv6");
    set_up_streams (self);
    set_up_login (self);
    if (self->options.gsi)
        set_up_data_channel (self);
}

static bool parse_options (Options *options, int *argc, char ***argv)
{
    /* Those that may hold any bytes are as names of files, which are taken as they are, whatever the locale. */
    const GOptionEntry entries[] = {
        {"gsi", 0, 0, G_OPTION_ARG_NONE, &options->gsi, "Authenticate with certificates", NULL},
        {"protection", 0, 0, G_OPTION_ARG_STRING, &options->protection, "clear, safe or private", "LEVEL"},
        {"no-data-authentication", 0, 0, G_OPTION_ARG_NONE, &options->no_data_authentication, "Trust data channels",
         NULL},
        {"extended", 0, 0, G_OPTION_ARG_NONE, &options->extended, "Use extended block mode", NULL},
        {"streams", 0, 0, G_OPTION_ARG_INT, &options->streams, "TCP streams per transfer", "N"},
        {"tcp-buffer", 0, 0, G_OPTION_ARG_INT, &options->tcp_buffer, "Size of TCP buffers", "BYTES"},
        {"subject", 0, 0, G_OPTION_ARG_FILENAME, &options->subject, "The server's identity", "SUBJECT"},
        {"user", 0, 0, G_OPTION_ARG_FILENAME, &options->user, "User to log in as", "NAME"},
        {"ssh", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &options->ssh, "Words of the program that carries commands", "WORD"},
        {"password-file", 0, 0, G_OPTION_ARG_FILENAME, &options->password_file, "File with the password", "FILE"},
        G_OPTION_ENTRY_NULL,
    };
    g_autoptr (GOptionContext) context = g_option_context_new ("- a connection of ecfs to a GridFTP server");
    g_autoptr (GError) error = NULL;
    g_option_context_add_main_entries (context, entries, NULL);
    if (g_option_context_parse (context, argc, argv, &error))
        return true;
    g_printerr ("ecfs-gridftp-helper: %s\n", error->message);
    return false;
}

int main (int argc, char **argv)
{
    static Helper self = {.options = {.streams = 1}};
    if (!parse_options (&self.options, &argc, &argv))
        return EXIT_FAILURE;
    self.memory = mmap (NULL, (size_t) ECFS_GRIDFTP_N_BLOCKS * ECFS_GRIDFTP_BLOCK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED, ECFS_GRIDFTP_MEMORY_FD, 0);
    if (self.memory == MAP_FAILED) {
        g_printerr ("ecfs-gridftp-helper is started by ecfs, for endpoints of gsiftp://, ftp:// and sshftp://\n");
        return EXIT_FAILURE;
    }
    ssh_words = self.options.ssh;
    ssh_errors = ssh_words == NULL ? -1 : memfd_create ("ssh", MFD_CLOEXEC);
    if (globus_module_activate (GLOBUS_FTP_CLIENT_MODULE) != GLOBUS_SUCCESS ||
        globus_module_activate (GLOBUS_XIO_MODULE) != GLOBUS_SUCCESS) {
        g_printerr ("ecfs-gridftp-helper: the Globus libraries do not start\n");
        return EXIT_FAILURE;
    }
    set_up_socket (&self);
    set_up_ftp (&self);
    await_message (&self);
    for (;;)
        globus_callback_poll (&globus_i_abstime_infinity);
}
