/* The program `ecfs`: finds the verb and runs it. */
#include "mount/mount_tool.h"
#include "program/program.h"
#include "tool_secret.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int verb_program (const Verb *verb, int argc, char **argv);

static const Verb verbs[] = {
    {"init", "ARCHIVE", "Makes an archive directory and marks its endpoints", verb_init},
    {"mount", "ARCHIVE MOUNTPOINT", "Mounts an archive as a directory", verb_mount},
    {"umount", "MOUNTPOINT|ARCHIVE", "Stores what is staged, then unmounts", verb_umount},
    {"put", "ARCHIVE FILE... PATH", "Stores files and directories", verb_put},
    {"get", "ARCHIVE PATH... TARGET", "Fetches files and directories", verb_get},
    {"cat", "ARCHIVE PATH...", "Writes the content of files to standard output", verb_cat},
    {"warm", "ARCHIVE PATH...", "Fetches files into the local cache", verb_warm},
    {"cache", "ARCHIVE", "Shows and empties the local cache", verb_cache},
    {"swarm", "list|stats|start|stop|drop|serve ARCHIVE ...", "Shows and controls what is shared with other machines",
     verb_swarm},
    {"mkdir", "ARCHIVE PATH...", "Makes directories", verb_mkdir},
    {"mv", "ARCHIVE PATH... PATH", "Renames and moves files and directories", verb_mv},
    {"rm", "ARCHIVE PATH...", "Removes files and directories", verb_rm},
    {"log", "ARCHIVE PATH", "Tells what became of a file or directory", verb_log},
    {"mark", "ARCHIVE NAME", "Gives this moment a name, and keeps all that is there now", verb_mark},
    {"history", "ARCHIVE", "Shows what is kept of the past, and lets go of it", verb_history},
    {"undelete", "ARCHIVE PATH...", "Brings back what was deleted or overwritten", verb_undelete},
    {"ls", "ARCHIVE [PATH...]", "Lists names in an archive", verb_ls},
    {"info", "ARCHIVE PATH...", "Shows how files are stored, stripe by stripe", verb_info},
    {"status", "ARCHIVE|MOUNTPOINT", "Shows the state of endpoints, objects and staging", verb_status},
    {"top", "ARCHIVE|MOUNTPOINT", "Shows what goes on in a mount, as it goes on", verb_top},
    {"report", "ARCHIVE|MOUNTPOINT", "Checks a share, rehearses a loss, and reports for a mail", verb_report},
    {"metrics", "ARCHIVE|MOUNTPOINT", "Prints that state as metrics for Prometheus", verb_metrics},
    {"wait", "ARCHIVE [PATH...]", "Waits until what was written is stored", verb_wait},
    {"endpoint", "list|add|test|readonly|active|drain|replace|remove|distrust ARCHIVE ...",
     "Lists, adds, tests, empties, replaces and removes endpoints", verb_endpoint},
    {"catalog", "move|join ARCHIVE ...", "Moves an archive's catalog into a database, or joins those that write it",
     verb_catalog},
    {"key", "list|check|add|remove|init|rotate ARCHIVE ...", "Shows, tries and changes how an archive's keys are kept",
     verb_key},
    {"plan", "", "Shows what codes survive and cost, before anything is stored", verb_plan},
    {"policy", "ARCHIVE [PATH]", "Moves what is cold to the code for that", verb_policy},
    {"recode", "ARCHIVE PATH", "Moves stored files to another code", verb_recode},
    {"export", "ARCHIVE PATH", "Prints the descriptor of a stored file", verb_export},
    {"fetch", "DESCRIPTOR FILE", "Fetches what a descriptor describes, without its archive", verb_fetch},
    {"locate", "CAPABILITY", "Shows what is published under a name, and where it is", verb_locate},
    {"recover", "ARCHIVE --endpoint URL...", "Makes an archive directory anew from its endpoints", verb_recover},
    {"takeover", "ARCHIVE [--endpoint URL...]", "Takes an archive over, or makes an old copy of it the newest",
     verb_takeover},
    {"prune", "DIRECTORY [--endpoint URL...]", "Removes what died long ago from accounts that only grow", verb_prune},
    {"destroy", "ARCHIVE", "Removes an archive with everything it stored", verb_destroy},
    {"drill", "ARCHIVE", "Rehearses the loss of endpoints", verb_drill},
    {"sim", "SCENARIO", "Simulates reading, or failure and repair over years", verb_sim},
    {"tune", "ARCHIVE", "Measures endpoints and machine, and proposes settings", verb_tune},
    {"bench", "codec [CODE...]", "Measures how fast codes are on this machine", verb_bench},
    {"fsck", "ARCHIVE [PATH...]", "Checks an archive, and rebuilds lost and damaged stripes", verb_program},
    {NULL, NULL, NULL, NULL},
};

static void print_usage (FILE *to)
{
    fputs ("Usage: ecfs VERB [OPTION...] ARCHIVE ...\n\nVerbs:\n", to);
    for (const Verb *verb = verbs; verb->name != NULL; verb++)
        fprintf (to, "  %-10s%s\n", verb->name, verb->summary);
    fputs ("\necfs help VERB explains a verb, ecfs --version says what is compiled in; see also ecfs(1).\n", to);
}

/* g_free () */
static char *words_of (JsonObject *features, const char *member)
{
    JsonArray *words = json_object_get_array_member (features, member);
    g_autoptr (GString) text = g_string_new (NULL);
    for (guint i = 0; i < json_array_get_length (words); i++)
        g_string_append_printf (text, "%s%s", i == 0 ? "" : ", ", json_array_get_string_element (words, i));
    return g_string_free (g_steal_pointer (&text), FALSE);
}

static void print_version (void)
{
    g_autofree char *text = ecfs_features ();
    g_autoptr (JsonObject) features = tool_json_object (text);
    JsonObject *libraries = json_object_get_object_member (features, "libraries");
    g_autofree char *schemes = words_of (features, "schemes"), *absent = words_of (features, "schemes_left_out");
    g_autofree char *codes = words_of (features, "codes");
    const char *liberasurecode = tool_text (libraries, "liberasurecode"), *libpq = tool_text (libraries, "libpq");
    printf ("ecfs %s\n", tool_text (features, "version"));
    printf ("endpoints  %s%s%s\n", schemes, *absent != '\0' ? "; built without " : "", absent);
    printf ("SSH        libssh2 %s\n", tool_text (libraries, "libssh2"));
    printf ("codes      %s\n", codes);
    printf ("rs         ISA-L %s; %s%s\n", tool_text (libraries, "ISA-L"),
            *liberasurecode == '\0' ? "without liberasurecode" : "liberasurecode ", liberasurecode);
    printf ("catalog    SQLite %s; %s%s\n", tool_text (libraries, "SQLite"),
            *libpq == '\0' ? "without PostgreSQL" : "libpq ", libpq);
    printf ("mount      FUSE %s\n", tool_fuse_version ());
}

/* Runs the program of a verb that has one of its own: the one beside this one, else the one in PATH. */
static int verb_program (const Verb *verb, int argc, char **argv)
{
    g_autofree char *name = g_strconcat ("ecfs-", verb->name, NULL);
    g_autofree char *self = g_file_read_link ("/proc/self/exe", NULL);
    g_autofree char *directory = g_path_get_dirname (self == NULL ? "" : self);
    g_autofree char *beside = g_build_filename (directory, name, NULL);
    (void) argc;
    argv[0] = name;
    (void) execv (beside, argv);
    (void) execvp (name, argv);
    fprintf (stderr, "ecfs %s: the program %s is neither in %s nor in PATH\n", verb->name, name, directory);
    return TOOL_FAILED;
}

static const Verb *find_verb (const char *name)
{
    const Verb *verb = verbs;
    while (verb->name != NULL && strcmp (verb->name, name) != 0)
        verb++;
    return verb->name == NULL ? NULL : verb;
}

static int unknown_verb (const char *name)
{
    g_autoptr (GPtrArray) names = g_ptr_array_new ();
    for (const Verb *verb = verbs; verb->name != NULL; verb++)
        g_ptr_array_add (names, (char *) verb->name);
    g_ptr_array_add (names, NULL);
    const char *near = tool_nearest (name, (const char *const *) names->pdata);
    fprintf (stderr, "ecfs: unknown verb \"%s\"\n", name);
    if (near != NULL)
        fprintf (stderr, "Did you mean \"ecfs %s\"?\n", near);
    else
        fputs ("ecfs --help lists the verbs.\n", stderr);
    return TOOL_USAGE;
}

/* On a terminal the page of the manual, where there is one; else what --help prints. */
static int help (int argc, char **argv)
{
    const Verb *verb = argc > 2 ? find_verb (argv[2]) : NULL;
    if (argc > 2 && verb == NULL)
        return unknown_verb (argv[2]);
    if (verb == NULL) {
        print_usage (stdout);
        return TOOL_DONE;
    }
    g_autofree char *page = g_strconcat ("ecfs-", verb->name, NULL);
    char *find[] = {(char *) "man", (char *) "-w", page, NULL}, *show[] = {(char *) "man", page, NULL};
    int status = -1;
    if (isatty (STDOUT_FILENO) &&
        g_spawn_sync (NULL, find, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL,
                      NULL, NULL, NULL, NULL, &status, NULL) &&
        status == 0)
        (void) execvp (show[0], show);
    bool action = argc > 3; /* ecfs help endpoint drain */
    char *option = (char *) "--help";
    char *words[] = {(char *) verb->name, action ? argv[3] : option, action ? option : NULL, NULL};
    return verb->run (verb, action ? 3 : 2, words);
}

int main (int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    g_autofree char *program = g_path_get_basename (argv[0]);
    /* Verbs tell what became of their work themselves; a mount, which runs for long, tells more. */
    ecfs_log_init (false, G_LOG_LEVEL_WARNING);
    ecfs_allow_many_files ();
    tool_hide_memory (); /* most verbs open the archive's keys */
    if (g_str_has_prefix (program, "mount."))
        return tool_mount_helper (program, argc, argv);
    if (g_str_has_prefix (program, "umount."))
        return tool_umount_helper (program, argc, argv);
    if (strcmp (name, "--version") == 0) {
        print_version ();
        return TOOL_DONE;
    }
    if (strcmp (name, "--help") == 0 || strcmp (name, "-h") == 0) {
        print_usage (stdout);
        return TOOL_DONE;
    }
    if (strcmp (name, "help") == 0)
        return help (argc, argv);
    const Verb *verb = find_verb (name);
    if (verb != NULL)
        return verb->run (verb, argc - 1, argv + 1);
    if (argc > 1)
        return unknown_verb (name);
    print_usage (stderr);
    return TOOL_USAGE;
}
