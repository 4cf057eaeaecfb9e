#include "tool_secret.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#define SECRET_MAX 65536 /* bytes of a file */
#define TYPED_MAX  1024  /* bytes that are typed */

static bool fail_errno (GError **error, const char *path)
{
    int number = errno;
    return tool_error (error, number, "%s: %s", path, g_strerror (number));
}

void tool_forget (char *secret)
{
    if (secret != NULL)
        explicit_bzero (secret, strlen (secret));
    g_free (secret);
}

void tool_hide_memory (void)
{
    (void) prctl (PR_SET_DUMPABLE, 0, 0, 0, 0); /* it cannot fail with 0 */
}

/* Files */

/* Up to the end, or @to is full: that is too much. */
static ssize_t read_all (int fd, char *to, size_t size)
{
    size_t n = 0;
    for (ssize_t got = 1; got != 0 && n < size;) {
        got = read (fd, to + n, size - n);
        if (got < 0 && errno != EINTR)
            return -1;
        n += got > 0 ? (size_t) got : 0;
    }
    return (ssize_t) n;
}

/* No stdio: its buffers would keep what is secret. */
static bool write_text (int fd, const char *text)
{
    for (size_t left = strlen (text); left > 0;) {
        ssize_t n = write (fd, text, left);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t) n : 0;
    }
    return true;
}

static char *read_text (const char *path, int fd, GError **error)
{
    char *text = g_malloc (SECRET_MAX);
    ssize_t size = read_all (fd, text, SECRET_MAX);
    bool good = size >= 0 && size < SECRET_MAX && memchr (text, '\0', (size_t) size) == NULL;
    if (good) {
        text[size] = '\0';
        return text;
    }
    if (size < 0)
        (void) fail_errno (error, path);
    else
        (void) tool_error (error, EINVAL, "%s: this is no text, or too long", path);
    explicit_bzero (text, SECRET_MAX);
    g_free (text);
    return NULL;
}

/* A secret that all may read is none. */
static bool is_own (const char *path, int fd, GError **error)
{
    struct stat status;
    if (fstat (fd, &status) != 0)
        return fail_errno (error, path);
    return !S_ISREG (status.st_mode) || (status.st_mode & S_IRWXO) == 0 ||
           tool_error (error, EPERM, "%s is a secret, and anybody may read it: chmod 600 %s", path, path);
}

static char *read_file (const char *path, bool secret, GError **error)
{
    int fd = open (path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        (void) fail_errno (error, path);
        return NULL;
    }
    char *text = secret && !is_own (path, fd, error) ? NULL : read_text (path, fd, error);
    (void) close (fd); /* nothing is written through it */
    return text;
}

/* The first line is what counts. */
static char *first_line (char *text)
{
    char *end = text == NULL ? NULL : text + strcspn (text, "\r\n");
    if (end != NULL)
        explicit_bzero (end, strlen (end));
    return text;
}

char *tool_capability (const char *word, GError **error)
{
    char *text = strcmp (word, "-") == 0 ? read_text ("standard input", STDIN_FILENO, error) : g_strdup (word);
    return first_line (text);
}

/* What a service was given for this; *ret_text NULL: nothing. */
static bool read_credential (const char *name, char **ret_text, GError **error)
{
    const char *directory = g_getenv ("CREDENTIALS_DIRECTORY");
    g_autofree char *path = directory == NULL ? NULL : g_build_filename (directory, name, NULL);
    *ret_text = NULL;
    if (path == NULL || access (path, F_OK) != 0)
        return true;
    *ret_text = read_file (path, false, error); /* who may read it there is systemd's concern */
    return *ret_text != NULL;
}

static bool find (const char *file, const char *credential, char **ret_text, GError **error)
{
    if (file == NULL)
        return read_credential (credential, ret_text, error);
    *ret_text = read_file (file, true, error);
    return *ret_text != NULL;
}

/* Asking */

/* One line without echo; what is typed is taken back by backspace and Ctrl-U. NULL: Ctrl-C, Ctrl-D, or too long. */
static char *type_line (void)
{
    char *line = g_malloc0 (TYPED_MAX);
    size_t n = 0;
    for (char c; n + 1 < TYPED_MAX && read (STDIN_FILENO, &c, 1) == 1;) {
        if (c == '\n' || c == '\r')
            return line;
        if (c == 3 || c == 4)
            break;
        if (c == 21)
            n = 0;
        else if (c == 8 || c == 127)
            n -= n > 0;
        else
            line[n++] = c;
        explicit_bzero (line + n, TYPED_MAX - n);
    }
    explicit_bzero (line, TYPED_MAX);
    g_free (line);
    return NULL;
}

static char *ask_terminal (const char *prompt)
{
    struct termios before, quiet;
    if (!isatty (STDIN_FILENO) || !isatty (STDERR_FILENO) || tcgetattr (STDIN_FILENO, &before) != 0)
        return NULL;
    quiet = before;
    quiet.c_lflag &= ~(tcflag_t) (ECHO | ICANON | ISIG);
    if (tcsetattr (STDIN_FILENO, TCSAFLUSH, &quiet) != 0) /* what was typed before it was asked for is no answer */
        return NULL;
    fprintf (stderr, "%s: ", prompt);
    char *line = type_line ();
    (void) tcsetattr (STDIN_FILENO, TCSAFLUSH, &before); /* as it was set before */
    fputc ('\n', stderr);
    return line;
}

/* As ssh has SSH_ASKPASS: its argument is what to ask, its first line the answer. */
static char *ask_program (const char *program, const char *prompt)
{
    const char *words[] = {program, prompt, NULL};
    g_autoptr (GError) error = NULL;
    int out = -1;
    GPid pid;
    if (!g_spawn_async_with_pipes (NULL, (char **) words, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &pid, NULL, &out, NULL,
                                   &error)) {
        tool_say ("key", "ECFS_ASKPASS: %s", error->message);
        return NULL;
    }
    char *text = read_text (program, out, &error);
    if (text == NULL)
        tool_say ("key", "ECFS_ASKPASS: %s", error->message);
    (void) close (out);
    return first_line (text);
}

static char *ask_for (const char *prompt)
{
    const char *program = g_getenv ("ECFS_ASKPASS");
    char *answer = program != NULL && *program != '\0' ? ask_program (program, prompt) : ask_terminal (prompt);
    if (answer != NULL && *answer != '\0')
        return answer;
    tool_forget (answer);
    return NULL;
}

static char *on_ask (void *user, const char *what)
{
    (void) user; /* there is one terminal */
    bool code = strcmp (what, "code") == 0;
    return ask_for (code ? "Code of the archive's key" : "Passphrase of the archive's key");
}

/* Verbs */

bool tool_secrets_read (ToolSecrets *self, bool ask, GError **error)
{
    char *passphrase = NULL, *code = NULL, *identity = NULL;
    bool good = find (self->passphrase_file, "ecfs.passphrase", &passphrase, error) &&
                find (self->code_file, "ecfs.code", &code, error) &&
                find (self->identity_file, "ecfs.identity", &identity, error);
    self->secrets = (EcfsKeySecrets){
        .passphrase = first_line (passphrase), .code = code, .identity = identity, .ask = ask ? on_ask : NULL};
    return good;
}

void tool_secrets_clear (ToolSecrets *self)
{
    tool_forget ((char *) self->secrets.passphrase);
    tool_forget ((char *) self->secrets.code);
    tool_forget ((char *) self->secrets.identity);
    g_free (self->passphrase_file);
    g_free (self->code_file);
    g_free (self->identity_file);
    *self = (ToolSecrets){.code_file = NULL};
}

char *tool_new_passphrase (const char *file, GError **error)
{
    char *text;
    if (!find (file, "ecfs.passphrase", &text, error))
        return NULL;
    if (text != NULL)
        return first_line (text);
    char *first = ask_for ("New passphrase of the archive's key"), *second = NULL;
    if (first == NULL) {
        (void) tool_error (error, EINVAL, "there is nobody to be asked for a passphrase: --passphrase-file FILE");
        return NULL;
    }
    second = ask_for ("The same passphrase again");
    bool same = g_strcmp0 (first, second) == 0;
    tool_forget (second);
    if (same)
        return first;
    tool_forget (first);
    (void) tool_error (error, EINVAL, "these were two different passphrases: nothing has changed");
    return NULL;
}

char *tool_new_code (const char *file, GError **error)
{
    char *code = ecfs_new_code ();
    int fd = file == NULL ? -1 : open (file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file == NULL)
        return code;
    bool good = fd >= 0 && write_text (fd, code) && write_text (fd, "\n") && fsync (fd) == 0;
    if (!good)
        (void) fail_errno (error, file);
    if (fd >= 0)
        (void) close (fd); /* all is on the disk, or an error is told */
    if (good)
        return code;
    if (fd >= 0)
        (void) unlink (file); /* of no use; made here */
    tool_forget (code);
    return NULL;
}

void tool_print_salvage (void)
{
    g_autofree char *digest = ecfs_salvage_sha256 ();
    printf ("The ecfs-salvage that this ecfs leaves at endpoints has the SHA-256\n  %s\nCompare it before you give a "
            "code or a key to a copy from an endpoint: whoever runs that could have changed it to give them away.\n",
            digest);
}

/* Where there is a file, it has the code already. */
static bool show_code (const char *code, const char *file)
{
    if (file != NULL)
        return printf ("The code that opens the archive's key is in %s: keep it away from this machine.\n", file) > 0;
    return printf (
               "Write this code down and keep it away from this machine. It opens the archive's key, and is not shown "
               "again:\n\n  ") > 0 &&
           fflush (stdout) == 0 && write_text (STDOUT_FILENO, code) && write_text (STDOUT_FILENO, "\n\n");
}

bool tool_print_code (const char *code, const char *file)
{
    bool shown = show_code (code, file);
    if (!shown)
        tool_say ("key", "the code cannot be shown, and nobody has it: %s", g_strerror (errno));
    tool_print_salvage ();
    return shown || file != NULL;
}

char *tool_public_key (const char *text, GError **error)
{
    return strlen (text) == 44 && access (text, F_OK) != 0 ? g_strdup (text) : read_file (text, false, error);
}
