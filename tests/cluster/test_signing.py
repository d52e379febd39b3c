"""Signatures of images by the real runtime, and the policies that `jaxsif run` obeys before it asks Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from harness import Cluster

SIGNER = r"SHA256:[A-Za-z0-9+/]{43}"
RUN = "jaxsif run --nodes=1 --gpus-per-node=1 --image {} -- echo it runs"
MAKE_KEYS = """
for key in site other; do
    openssl genpkey -algorithm ed25519 -out $key.key 2>/dev/null && openssl pkey -in $key.key -pubout -out $key.pem
done
cp $JAX_IMAGE plain.sif && cp $JAX_IMAGE signed.sif && jaxsif image sign signed.sif --key site.key
"""


class Site:
    """A folder of the user's with keys and images in it."""

    def __init__(self, cluster: Cluster, folder: str) -> None:
        self.cluster, self.folder = cluster, folder

    def bash(self, script: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of a script in the folder."""
        done = self.cluster.run(f"cd {self.folder} && module load jax/sif && {script}")
        return done.returncode, done.stdout, done.stderr

    def allow(self, setting: str) -> None:
        self.cluster.write(f"{self.folder}/jaxsif.toml", f"[policy]\n{setting}\n")

    def refusal(self, image: str, key: str) -> str:
        """Why `jaxsif run` refuses an image; no job may have been asked for."""
        newest = "scontrol show jobs --oneliner | grep -o 'JobId=[0-9]*' | sort -V | tail -1"
        before = self.bash(newest)[1]
        status, out, err = self.bash(RUN.format(image))
        assert (status, out) == (125, "")
        assert self.bash(newest)[1] == before
        found = re.fullmatch(
            rf"jaxsif: {self.folder}/jaxsif\.toml sets policy\.{key}\n"
            rf"jaxsif: error: the policy refuses this run: (.*)\n  from: policy\.{key} in {self.folder}/jaxsif\.toml; "
            r"the image is from --image\n  try:  run an image that the policy allows, or ask whoever set it\n",
            err,
        )
        assert found, err
        return found[1].replace(f"{self.folder}/", "")


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    path = cluster.check("mktemp -d ~/site.XXXXXX").strip()
    one = Site(cluster, path)
    assert one.bash(f"set -e\n{MAKE_KEYS}")[0] == 0
    yield one
    cluster.check(f"chmod -R u+w {path} && rm -rf {path} ~/.cache/jaxsif")


@pytest.fixture(autouse=True)
def no_policy(site: Site) -> Iterator[None]:
    yield
    site.bash("rm -f jaxsif.toml")


def test_signed_image_is_verified(site: Site) -> None:
    status, out, err = site.bash("jaxsif image verify signed.sif --key site.pem")
    assert (status, err) == (0, "")
    assert re.fullmatch(rf"signed by {SIGNER}\ndigest    sha256:[0-9a-f]{{64}}\n", out)


def test_signing_again_changes_nothing(site: Site) -> None:
    status, out, _ = site.bash(
        "before=$(stat -c %i:%s:%z signed.sif); jaxsif image sign signed.sif --key site.key && "
        '[ "$before" = "$(stat -c %i:%s:%z signed.sif)" ] && ls -A'
    )
    assert status == 0
    assert re.match(rf"signed\.sif was already signed by {SIGNER}\n", out)
    assert ".sign-" not in out


def test_a_second_key_would_spoil_the_signature(site: Site) -> None:
    status, _, err = site.bash("jaxsif image sign signed.sif --key other.key")
    assert status == 125
    assert err.startswith("jaxsif: error: image has another signature, and Apptainer would refuse both: signed.sif\n")
    assert site.bash("jaxsif image verify signed.sif --key site.pem")[0] == 0


def test_damaged_image_is_not_signed_again(site: Site) -> None:
    status, _, err = site.bash(
        "cp signed.sif damaged.sif && printf X | dd of=damaged.sif bs=1 seek=1000000 conv=notrunc status=none; "
        "jaxsif image sign damaged.sif --key site.key"
    )
    assert status == 1
    reason = "it has changed since this key signed it"
    assert f"jaxsif: error: signature verification failed for damaged.sif: {reason}\n" in err
    assert "  try:  copy or build it again; or, if you changed it, remove the old signature: " in err


def test_key_that_cannot_sign(site: Site) -> None:
    status, out, err = site.bash(
        "before=$(stat -c %i:%s:%z plain.sif); jaxsif image sign plain.sif --key site.pem; status=$?; "
        '[ "$before" = "$(stat -c %i:%s:%z plain.sif)" ] && ls -A && exit $status'
    )
    assert status == 125
    assert ".sign-" not in out
    assert "PUBLIC KEY" in err
    assert "jaxsif: error: apptainer sign failed (exit status 255): plain.sif\n" in err


FLIP = "cp signed.sif flipped.sif && chmod u+w flipped.sif && python3 -c \"\nf = open('flipped.sif', 'r+b'); "
FLIP += 'f.seek(100_000_000); byte = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([byte ^ 1]))" && '


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("plain.sif --key site.pem", 1, "no signature in plain.sif\n  from: site.pem\n"),
        ("signed.sif --key other.pem", 1, "signed.sif was signed with another key\n  from: other.pem\n"),
        (f"signed.sif --pgp {'A' * 40}", 1, f"signed.sif was signed with another key\n  from: {'A' * 40}\n"),
        ("flipped.sif --key site.pem", 1, "signature verification failed for flipped.sif: data object integrity "),
        ("signed.sif --key site.key", 125, "cannot use the key site.key: unknown Public key PEM file type"),
        ("site.pem --key site.pem", 125, "not a SIF image: site.pem\n"),
    ],
    ids=["none", "another key", "not by PGP", "one bit flipped", "private key", "no image"],
)
def test_image_that_is_not_verified(site: Site, arguments: str, status: int, message: str) -> None:
    found, out, err = site.bash(f"{FLIP} jaxsif image verify {arguments}")
    assert (found, out) == (status, "")
    assert err.startswith(f"jaxsif: error: {message}")


def test_signature_of_another_part_is_not_enough(site: Site) -> None:
    status, _, err = site.bash(
        "cp plain.sif part.sif && apptainer --quiet sign --key site.key --sif-id 1 part.sif && "
        "jaxsif image verify part.sif --key site.pem"
    )
    assert status == 1
    assert "jaxsif: error: signature verification failed for part.sif: object 2: object not signed\n" in err


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("", "non-signature object not associated with object group"),
        ("--groupid 2", "signature not found for object group 2"),
    ],
    ids=["in no group", "in another group"],
)
def test_partition_that_no_signature_is_about(site: Site, group: str, reason: str) -> None:
    """Added to something else that the site did sign."""
    status, _, err = site.bash(f"""
        mkdir -p tree && mksquashfs tree added.sqfs -quiet -noappend >&2 && echo text >text && rm -f added.sif &&
        apptainer sif new added.sif && apptainer sif add --datatype 1 --groupid 1 added.sif text &&
        apptainer --quiet sign --key site.key added.sif && apptainer --quiet verify --key site.pem added.sif &&
        apptainer sif add --datatype 4 --parttype 2 --partfs 1 --partarch 2 {group} added.sif added.sqfs
    """)
    assert status == 0, err
    site.allow('signed-by = ["site.pem"]')
    assert site.refusal("added.sif", "signed-by") == f"signature verification failed for added.sif: {reason}"


def test_variables_do_not_change_the_key(site: Site) -> None:
    certificate = "openssl req -x509 -key site.key -subj /CN=x -out site.crt && "
    verify = "APPTAINER_VERIFY_CERTIFICATE=site.crt APPTAINER_VERIFY_KEY=site.pem jaxsif image verify signed.sif"
    assert site.bash(f"{certificate} {verify} --key other.pem")[0] == 1


def test_pgp(site: Site) -> None:
    """A keyring of the test's own; signed again by a second key, as PGP allows."""
    keys = "export APPTAINER_KEYSDIR=$PWD/keys && "
    new = "apptainer key newpair --name {0} --email {0}@example.org --comment '' --password '' --push=false >&2 && "
    listed = "apptainer key list | grep -oE '[0-9A-F]{40}'"
    status, out, err = site.bash(f"{keys} {new.format('one')} {new.format('two')} {listed}")
    assert status == 0, err
    one, two = out.split()
    sign = "jaxsif image sign pgp.sif --pgp --keyidx"
    status, out, err = site.bash(f"{keys} cp plain.sif pgp.sif && {sign} 0 && {sign} 0 && {sign} 1")
    assert status == 0, err
    said = ("is signed", one), ("was already signed", one), ("is signed", two)
    assert out.splitlines() == [f"pgp.sif {how} by {key}" for how, key in said]
    for key in (one, two.lower()):
        status, out, err = site.bash(f"{keys} jaxsif image verify pgp.sif --pgp {'B' * 40} --pgp {key}")
        assert (status, out.splitlines()[0]) == (0, f"signed by {key.upper()}"), err
    site.allow(f'signed-by = ["{two}"]')
    assert site.bash(f"{keys} {RUN.format('pgp.sif')}")[:2] == (0, "it runs\n")
    assert site.refusal("plain.sif", "signed-by") == "no signature in plain.sif"
    status, _, err = site.bash(f"APPTAINER_KEYSDIR=$PWD/none XDG_CACHE_HOME=$PWD/none {RUN.format('pgp.sif')}")
    missing = f"no keyring here has the key {one}, which signed {site.folder}/pgp.sif\n"
    assert status == 125
    assert f"the policy refuses this run: {missing}" in err
    assert "  try:  apptainer key import " in err
    keys += f" apptainer key remove --public {two} && XDG_CACHE_HOME=$PWD/none"
    status, _, err = site.bash(f"{keys} {RUN.format('pgp.sif')}")
    assert (status, f"no keyring here has the key {two}, which signed" in err) == (125, True)


def test_signing_that_is_ended(site: Site) -> None:
    """While the runtime asks for a passphrase: the image is as it was, and nothing is beside it."""
    key = "export APPTAINER_KEYSDIR=$PWD/asked && apptainer key newpair --name x --email x@example.org --comment '' "
    status, out, err = site.bash(f"""{key} --password secret --push=false >/dev/null
        mkdir ended && cp plain.sif ended && cd ended || exit
        mkfifo silence && exec 3<>silence && rm silence
        jaxsif image sign plain.sif --pgp <&3 >/dev/null 2>said &
        until grep -q passphrase said 2>/dev/null; do sleep 0.1; done
        ls -A | grep sign- | grep -cv lock && kill -TERM $! && wait $!
        echo $? && cmp plain.sif ../plain.sif && rm said && ls -A && pgrep -u $USER apptainer""")
    assert (status, out) == (1, "1\n143\nplain.sif\n"), err


def test_policy_lets_the_signed_image_run(site: Site) -> None:
    site.allow('signed-by = ["other.pem", "site.pem"]')
    status, out, err = site.bash(RUN.format("signed.sif"))
    assert (status, out) == (0, "it runs\n"), err
    for option in ("--dry-run", "--verbose"):
        status, _, err = site.bash(RUN.format("signed.sif").replace("--nodes", f"{option} --nodes"))
        assert status == 0
        assert err.startswith(f"jaxsif: {site.folder}/jaxsif.toml sets policy.signed-by\n")
        assert re.search(
            rf"jaxsif: policy\.signed-by of {site.folder}/jaxsif\.toml is satisfied: signed by {SIGNER}\n", err
        )


def test_policy_before_the_image_is_staged(site: Site) -> None:
    site.allow('signed-by = ["site.pem"]')
    script = "salloc --quiet --nodes=2 --gpus-per-node=1 jaxsif run --stage --image {} -- echo it runs"
    status, out, err = site.bash(script.format("signed.sif"))
    site.bash(
        "srun --nodes=4 --ntasks-per-node=1 sh -c 'chmod -R u+w /tmp/jaxsif-$(id -u); rm -rf /tmp/jaxsif-$(id -u)'"
    )
    assert (status, out) == (0, "it runs\n" * 2), err
    status, out, err = site.bash(script.format("plain.sif"))
    assert (status, out) == (125, "")
    assert "jaxsif: error: the policy refuses this run: no signature in " in err
    assert "copied" not in err


def test_policy_refuses_what_is_not_signed_so(site: Site) -> None:
    site.allow('signed-by = ["site.pem"]')
    site.bash(f"{FLIP} mkdir -p sandbox/.singularity.d")
    assert site.refusal("plain.sif", "signed-by") == "no signature in plain.sif"
    assert site.refusal("flipped.sif", "signed-by").startswith(
        "signature verification failed for flipped.sif: data object"
    )
    assert site.refusal("sandbox", "signed-by") == "sandbox is a folder, and has neither digest nor signature"
    assert site.bash(RUN.format("plain.sif").replace("--nodes", "--dry-run --nodes"))[:2] == (125, "")
    site.allow('signed-by = ["other.pem"]')
    assert site.refusal("signed.sif", "signed-by") == "signed.sif was signed with another key"


def test_image_that_changes_after_it_was_verified(site: Site) -> None:
    site.allow('signed-by = ["site.pem"]')
    site.bash("cp signed.sif changing.sif; chmod u+w changing.sif")
    assert site.bash(RUN.format("changing.sif"))[0] == 0
    site.bash("printf 'x' | dd of=changing.sif bs=1 seek=99999999 conv=notrunc; touch -r signed.sif changing.sif")
    assert site.refusal("changing.sif", "signed-by").startswith("signature verification failed for changing.sif: ")


def test_key_that_changes_after_it_was_used(site: Site) -> None:
    site.allow('signed-by = ["now.pem"]')
    site.bash("cp site.pem now.pem")
    assert site.bash(RUN.format("signed.sif"))[0] == 0
    site.bash("cp other.pem now.pem")
    assert site.refusal("signed.sif", "signed-by") == "signed.sif was signed with another key"


def test_policy_on_digests(site: Site) -> None:
    digest = site.bash("jaxsif image verify signed.sif --key site.pem")[1].split()[-1]
    site.allow(f'digests = ["{digest}"]')
    assert site.bash(RUN.format("plain.sif"))[:2] == (0, "it runs\n")  # the same image, whoever signed it
    site.bash(FLIP + "true")
    assert re.fullmatch(r"the digest of flipped\.sif is sha256:[0-9a-f]{64}", site.refusal("flipped.sif", "digests"))
    other = digest[:-1] + ("1" if digest[-1] == "0" else "0")
    site.allow(f'digests = ["{other}"]')
    assert site.refusal("plain.sif", "digests") == f"the digest of plain.sif is {digest}"


def test_overlay_in_the_image(site: Site) -> None:
    """What a second partition would lay over the root file system has no part in its digest."""
    site.allow('signed-by = ["site.pem"]')
    add = "apptainer sif add --datatype 4 --parttype 4 --partfs 1 --partarch 2 --groupid 2"
    status, _, err = site.bash(
        "cp signed.sif overlay.sif && chmod u+w overlay.sif && mkdir upper && mksquashfs upper over.sqfs -quiet >&2 && "
        f"{add} overlay.sif over.sqfs"
    )
    assert status == 0, err
    assert site.refusal("overlay.sif", "signed-by").startswith(
        "image has 2 partitions, 1 of them with a root file system: "
    )
