#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

typedef struct Listing {
    gboolean json, details, recursive;
    unsigned n_entries;
} Listing;

static const char *type_of (uint32_t mode)
{
    static const struct {
        uint32_t type;
        const char *word;
    } types[] = {
        {S_IFREG, "file"}, {S_IFDIR, "directory"}, {S_IFLNK, "symlink"}, {S_IFIFO, "fifo"}, {S_IFSOCK, "socket"}};
    for (size_t i = 0; i < G_N_ELEMENTS (types); i++)
        if ((mode & S_IFMT) == types[i].type)
            return types[i].word;
    return "device";
}

static void set_text (JsonObject *object, const char *member, const char *bytes)
{
    g_autofree char *text = g_utf8_make_valid (bytes, -1);
    json_object_set_string_member (object, member, text);
}

static void print_json (Listing *self, const EcfsEntry *entry)
{
    JsonObject *object = json_object_new ();
    set_text (object, "name", entry->name);
    set_text (object, "path", entry->path);
    json_object_set_string_member (object, "type", type_of (entry->mode));
    json_object_set_int_member (object, "inode", (int64_t) entry->inode);
    json_object_set_int_member (object, "mode", entry->mode & 07777);
    json_object_set_int_member (object, "nlink", entry->nlink);
    json_object_set_int_member (object, "uid", entry->uid);
    json_object_set_int_member (object, "gid", entry->gid);
    json_object_set_int_member (object, "size", (int64_t) entry->size);
    json_object_set_int_member (object, "mtime_ns", entry->mtime_ns);
    json_object_set_boolean_member (object, "staged", entry->staged);
    if (entry->target != NULL)
        set_text (object, "target", entry->target);
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    g_autofree char *text = json_to_string (node, FALSE);
    printf ("%s %s", self->n_entries > 0 ? ",\n" : "", text);
}

static void mode_text (uint32_t mode, char text[11])
{
    static const char letters[] = "rwxrwxrwx";
    text[0] = S_ISDIR (mode)    ? 'd'
              : S_ISLNK (mode)  ? 'l'
              : S_ISREG (mode)  ? '-'
              : S_ISFIFO (mode) ? 'p'
              : S_ISCHR (mode)  ? 'c'
              : S_ISBLK (mode)  ? 'b'
                                : 's';
    for (unsigned i = 0; i < 9; i++)
        text[1 + i] = (mode & (0400u >> i)) != 0 ? letters[i] : '-';
    if ((mode & S_ISUID) != 0)
        text[3] = (mode & S_IXUSR) != 0 ? 's' : 'S';
    if ((mode & S_ISGID) != 0)
        text[6] = (mode & S_IXGRP) != 0 ? 's' : 'S';
    if ((mode & S_ISVTX) != 0)
        text[9] = (mode & S_IXOTH) != 0 ? 't' : 'T';
    text[10] = '\0';
}

static void print_details (const EcfsEntry *entry, const char *name)
{
    char mode[11];
    mode_text (entry->mode, mode);
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (entry->mtime_ns / 1000000000);
    g_autofree char *date = time == NULL ? g_strdup ("?") : g_date_time_format (time, "%Y-%m-%d %H:%M");
    g_autofree char *target = entry->target == NULL ? NULL : tool_printable (entry->target);
    printf ("%s %3u %5u %5u %12" PRIu64 " %s %s%s%s%s\n", mode, entry->nlink, entry->uid, entry->gid, entry->size, date,
            name, target != NULL ? " -> " : "", target != NULL ? target : "", entry->staged ? " (staged)" : "");
}

static void print_entry (void *user, const EcfsEntry *entry)
{
    Listing *self = user;
    g_autofree char *name = tool_printable (self->recursive ? entry->path : entry->name);
    if (self->json)
        print_json (self, entry);
    else if (self->details)
        print_details (entry, name);
    else
        puts (name);
    self->n_entries++;
}

int verb_ls (const Verb *verb, int argc, char **argv)
{
    Listing listing = {0};
    g_autofree char *at = NULL;
    const GOptionEntry options[] = {
        {"long", 'l', 0, G_OPTION_ARG_NONE, &listing.details, "Also show modes, owners, sizes and times", NULL},
        {"recursive", 'R', 0, G_OPTION_ARG_NONE, &listing.recursive, "Also list what is in directories, as whole paths",
         NULL},
        TOOL_AT (&at),
        {"json", 0, 0, G_OPTION_ARG_NONE, &listing.json, "Print a JSON array", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, G_MAXINT);
    GError *error = NULL;
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 0, 0);
    g_autoptr (Ecfs) ecfs = tool_open (words[1], at, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, at == NULL ? TOOL_FAILED : tool_status (error->code));
    int status = TOOL_DONE;
    if (listing.json)
        fputs ("[", stdout);
    for (int i = 2; i < MAX (argc, 3); i++)
        if (!ecfs_list (ecfs, i < argc ? words[i] : "/", listing.recursive, print_entry, &listing, &error)) {
            status = tool_fail (verb->name, error, TOOL_FAILED);
            error = NULL;
        }
    if (listing.json)
        puts (" ]");
    return status;
}
