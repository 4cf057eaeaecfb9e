/* What the words behind -o mean. Which of them the kernel or mount(8) know is libmount's knowledge. */
#include "fs/fs_priv.h"

#include <libmount.h>
#include <string.h>
#include <sys/mount.h>

#define MAX_THREADS 1000

/* What libfuse takes and hands on; of the kernel's words it has only these. */
static const char *const handed_on[] = {
    "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async", "dirsync", "noatime", "nodiratime",
    "allow_root", "max_read=", "auto_unmount", "context=", "fscontext=", "defcontext=", "rootcontext=",
    /* for measuring */
    "max_write=", "max_readahead=", "max_background=", "congestion_threshold=", "async_read", "sync_read",
    "splice_read", "no_splice_read", "splice_write", "no_splice_write", "splice_move"};

/* What the kernel knows and a FUSE mount cannot do. Its other words change nothing here: FUSE keeps no times itself. */
static const char *const impossible[] = {"bind", "rbind", "mand", "iversion", "nosymfollow"};

/* "defaults", which libmount has no flag for, and what mount(8) repeats from mountinfo with "remount". */
static const char *const meaningless[] = {
    "defaults", "default_permissions", "user_id=", "group_id=", "rootmode=", "fd="};

static bool is_one_of (const char *const *words, size_t n_words, const char *word)
{
    const char *equals = strchr (word, '=');
    for (size_t i = 0; i < n_words; i++)
        if (equals == NULL ? strcmp (word, words[i]) == 0 : strncmp (word, words[i], (size_t) (equals - word) + 1) == 0)
            return true;
    return false;
}

static bool is_in_map (int map, const char *word)
{
    char *found = NULL;
    bool known =
        mnt_optstr_get_options (word, &found, mnt_get_builtin_optmap (map), 0) == 0 && found != NULL && *found != '\0';
    free (found); /* libmount's malloc */
    return known;
}

/* A quotation mark that is not closed hides from libmount all that follows it. */
static bool is_unbalanced (const char *list)
{
    bool open = false;
    for (const char *c = list; *c != '\0'; c++)
        open ^= *c == '"';
    return open;
}

void ecfs_fs_add_option (GString *to, const char *name, const char *value)
{
    g_string_append_printf (to, "%s%s", to->len > 0 ? "," : "", name);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == ',' || *c == '\\')
            g_string_append_c (to, '\\');
        g_string_append_c (to, *c);
    }
}

static bool take_number (const char *value, guint64 least, guint64 most, unsigned *ret_number)
{
    guint64 n;
    if (!g_ascii_string_to_unsigned (value, 10, least, most, &n, NULL))
        return false;
    *ret_number = (unsigned) n;
    return true;
}

/* "suid" and "dev" by names of our own: as defaults of most file systems, mount(8) drops them on the way to a helper.
 */
static void allow_kernel (EcfsMountOptions *self, const char *word)
{
    self->flags &= ~(unsigned long) (strcmp (word, "suid") == 0 ? MS_NOSUID : MS_NODEV);
    ecfs_fs_add_option (self->fuse_words, "", word);
}

/* Takes one word; false: nobody knows it, or it cannot be had. */
static bool take_word (EcfsMountOptions *self, const char *word)
{
    /* libfuse hands it to the kernel, and wants to be told the same by who serves. */
    if (g_str_has_prefix (word, "max_read=") &&
        !take_number (word + strlen ("max_read="), 4096, G_MAXUINT, &self->max_read))
        return false;
    if (strcmp (word, "ro") == 0 || strcmp (word, "rw") == 0)
        self->readonly = word[1] == 'o';
    else if (strcmp (word, "follow") == 0)
        self->follow = true;
    else if (strcmp (word, "allow_other") == 0)
        self->allow_other = true;
    else if (g_str_has_prefix (word, "log=") && word[4] != '\0') {
        g_free (self->log);
        self->log = g_canonicalize_filename (word + 4, NULL);
    } else if (g_str_has_prefix (word, "at=") && word[3] != '\0') {
        g_free (self->at);
        self->at = g_strdup (word + 3);
    } else if (strcmp (word, "nonempty") == 0)
        self->nonempty = true;
    else if (strcmp (word, "remount") == 0)
        self->remount = true;
    else if (strcmp (word, "allow_suid") == 0 || strcmp (word, "allow_dev") == 0)
        allow_kernel (self, word + strlen ("allow_"));
    else if (strcmp (word, "clone_fd") == 0)
        self->clone_fd = true;
    else if (g_str_has_prefix (word, "max_threads="))
        return take_number (word + strlen ("max_threads="), 1, MAX_THREADS, &self->max_threads);
    else if (is_one_of (handed_on, G_N_ELEMENTS (handed_on), word))
        ecfs_fs_add_option (self->fuse_words, "", word);
    else if (is_one_of (impossible, G_N_ELEMENTS (impossible), word))
        return false;
    else
        return (strchr (word, '=') == NULL && is_in_map (MNT_LINUX_MAP, word)) || is_in_map (MNT_USERSPACE_MAP, word) ||
               is_one_of (meaningless, G_N_ELEMENTS (meaningless), word);
    return true;
}

bool ecfs_mount_options_add (EcfsMountOptions *self, const char *list, bool sloppy, GError **error)
{
    g_autoptr (GString) unknown = g_string_new (NULL);
    g_autofree char *copy = g_strdup (list);
    char *next = copy, *name, *value;
    size_t name_size, value_size;
    int result;
    if (self->fuse_words == NULL)
        self->fuse_words = g_string_new (NULL);
    while ((result = mnt_optstr_next_option (&next, &name, &name_size, &value, &value_size)) == 0) {
        g_autofree char *word = g_strndup (name, value != NULL ? (size_t) (value + value_size - name) : name_size);
        if (!take_word (self, word))
            g_string_append_printf (unknown, "%s%s", unknown->len > 0 ? ", " : "", word);
    }
    if (result < 0 || is_unbalanced (list) ||
        mnt_optstr_get_flags (list, &self->flags, mnt_get_builtin_optmap (MNT_LINUX_MAP)) != 0)
        return ecfs_fail (error, EINVAL, "these are no mount options: %s", list);
    return unknown->len == 0 || sloppy ||
           ecfs_fail (error, EINVAL, "unknown or impossible mount options: %s (ecfs-mount(1) lists those there are)",
                      unknown->str);
}

void ecfs_mount_options_clear (EcfsMountOptions *self)
{
    if (self->fuse_words != NULL)
        g_string_free (g_steal_pointer (&self->fuse_words), TRUE);
    g_clear_pointer (&self->log, g_free);
    g_clear_pointer (&self->at, g_free);
}
