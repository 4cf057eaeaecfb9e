/* The codecs that an archive's content is coded with. */
#include "archive/common.h"
#include "fixture.h"

#ifdef ECFS_WITH_LIBERASURECODE

static void choose_liberasurecode (EcfsConfig *config)
{
    g_assert_true (ecfs_config_set (config, "rs_provider", "liberasurecode", NULL));
}

static void assert_provider (Fixture *fixture, const char *code, uint64_t bytes, const char *provider)
{
    g_autoptr (GError) error = NULL;
    const EcfsCodec *codec = ecfs_archive_object_codec (fixture->archive, code, bytes, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (ecfs_codec_provider (codec), ==, provider);
}

static void test_provider (void)
{
    Fixture fixture = {0};
    set_up_adjusted (&fixture, "rs:4+2", choose_liberasurecode);
    assert_provider (&fixture, "rs:4+2", 1 << 20, "liberasurecode");
    assert_provider (&fixture, "rs:3+1", 1 << 20, "liberasurecode");
    assert_provider (&fixture, "rs:4+2", 100, NULL); /* copies */
    assert_provider (&fixture, "ldpc:4+2", 1 << 20, NULL);
    tear_down (&fixture, NULL);
    Fixture preset = {0};
    set_up (&preset, "rs:4+2");
    assert_provider (&preset, "rs:4+2", 1 << 20, "isal");
    tear_down (&preset, NULL);
}

#else

static void test_provider (void)
{
    g_autoptr (EcfsConfig) config = ecfs_config_new ();
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_config_set (config, "rs_provider", "liberasurecode", NULL));
    g_assert_false (ecfs_config_check (config, &error));
    g_assert_error (error, ECFS_ERROR, ENOTSUP);
}

#endif

/* It would make the journal need more copies, and deletions more answers, than any file does. */
static void test_refused (void)
{
    Fixture fixture = {0};
    set_up (&fixture, "rs:4+2");
    unsigned copies = ecfs_archive_journal_copies (fixture.archive);
    g_assert_cmpuint (copies, ==, 3);
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr (GError) error = NULL;
        g_assert_false (ecfs_archive_check_code (fixture.archive, "rs:4+5", &error));
        g_assert_error (error, ECFS_ERROR, EINVAL);
        g_assert_cmpuint (ecfs_archive_journal_copies (fixture.archive), ==, copies);
    }
    g_assert_true (ecfs_archive_check_code (fixture.archive, "rs:3+3", NULL));
    tear_down (&fixture, NULL);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/archive/rs-is-computed-by-the-provider-of-the-configuration", test_provider);
    g_test_add_func ("/archive/a-code-that-is-refused-is-not-in-use", test_refused);
    return g_test_run ();
}
