# The one front door. Everything here works on a fresh clone with a Rust toolchain and make.

CARGO ?= cargo
FUZZ_SECONDS ?= 60
LAB_OUT ?= lab-results
PREFIX ?= /usr/local
DESTDIR ?=
TEST_OPTIONS ?=
# TLS with keys that both sides know (PSK) is OpenSSL's; without its headers all else is built.
PSK := $(shell pkg-config --exists 'openssl >= 1.1.1' 2>/dev/null && echo tls-psk)
WITH = $(if $(PSK),--features ravelin/$(PSK))
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release/ravelin
STUDIES = $(wildcard $(or $(CARGO_TARGET_DIR),target)/debug/deps/liblab-*.rlib)

LIBRARY_TESTS = it fuzz_bodies nbd_hostile trees
# Of the engine: two of its tests wait for drives that hang, for more than a minute, and compute nothing meanwhile.
WAITING_TESTS = drives
# For minutes, and in a release build: `make verify`.
LONG_TESTS = growing

.PHONY: demo test test-program test-libraries test-waiting check verify e2e shear bench lab fuzz release install uninstall deb clean

# The main job on this machine: no root, no kernel module, no spare drives. On a clean clone only what the demo needs is
# compiled; where the studies have been compiled, the demo is run by the program with all commands.
demo:
	$(CARGO) run --quiet -p ravelin $(if $(STUDIES),,--no-default-features) $(WITH) -- demo

# Examples are not linked for this; `make check` has compiled them. The program's tests mostly wait for daemons and
# devices, so they run beside the others, of which most compute; so do the engine's.
test:
	$(CARGO) test --quiet --workspace --tests $(WITH) --no-run
	$(MAKE) --jobs=3 $(if $(TEST_OPTIONS),--output-sync=target) test-program test-waiting test-libraries
	$(CARGO) test --workspace --doc $(WITH) $(if $(TEST_OPTIONS),-- $(TEST_OPTIONS))

test-program:
	$(CARGO) test -p ravelin --tests $(WITH) -- --test-threads=4 $(TEST_OPTIONS)

# All test programs of the other crates, by name: without `ravelin` among the crates that are selected, those that they
# share would be compiled again with other features.
test-libraries:
	$(CARGO) test --workspace --lib $(addprefix --test ,$(LIBRARY_TESTS)) $(WITH) $(if $(TEST_OPTIONS),-- $(TEST_OPTIONS))

test-waiting:
	$(CARGO) test --workspace $(addprefix --test ,$(WAITING_TESTS)) $(WITH) $(if $(TEST_OPTIONS),-- $(TEST_OPTIONS))

# Format, lints, licences; warnings are errors here. Releases have no debug assertions, so what only they have is compiled too.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(WITH) -- -D warnings
	$(CARGO) clippy -p ravelin --no-default-features $(WITH) -- -D warnings
	$(CARGO) check --release -p ravelin $(WITH)
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check; \
	else echo "licences and advisories are not checked: cargo-deny is not installed"; fi

# The long form of the sweeps.
verify:
	RAVELIN_LONG=1 $(CARGO) test --workspace --tests $(WITH)
	$(CARGO) test --release -p ravelin-sim $(addprefix --test ,$(LONG_TESTS))

# Real clients and real kernels, as far as they are there; what is missing is named as skipped.
e2e:
	$(CARGO) test -p ravelin $(WITH) --test e2e --test service -- --nocapture
	$(CARGO) test -p ravelin -p ravelin-export $(WITH) --test program --test it -- --nocapture restarts:: crashes:: guest:: nbd_interop::

# `ravelin shear` on real volumes, btrfs and md, in real time. For a host that is quiet: on a busy one answers can be wrong.
shear:
	$(CARGO) test -p ravelin $(WITH) --test program -- --ignored --nocapture --test-threads=4 shear::

bench:
	$(CARGO) bench --workspace

# The papers' figures at their sizes: results and a page per paper in $(LAB_OUT).
lab:
	$(CARGO) run --quiet -p ravelin $(WITH) -- lab run all --full --out $(LAB_OUT)

# Needs a nightly toolchain and cargo-fuzz: make fuzz TARGET=nbd_request
fuzz:
	cd fuzz && $(CARGO) +nightly fuzz run $(TARGET) -- -max_total_time=$(FUZZ_SECONDS)

release:
	$(CARGO) build --release --locked -p ravelin $(WITH)

# The program, manual pages, completions and the unit: make install PREFIX=/usr/local DESTDIR=
# Root installs what the tree's owner has built: cargo would leave files behind that only root can change.
install:
	@if [ "$$(id -u)" = 0 ] && [ "$$(stat -c %u .)" != 0 ]; then \
		[ -x $(RELEASE) ] || { echo "$(RELEASE) is not built: run \`make release\` as the owner of this tree" >&2; exit 1; }; \
	else $(MAKE) release; fi
	packaging/no-seeded-faults $(RELEASE)
	packaging/install $(RELEASE) "$(DESTDIR)" "$(PREFIX)"

# What `install` has put there; pools and what the daemon remembers stay.
uninstall:
	rm -f "$(DESTDIR)$(PREFIX)/bin/ravelin" "$(DESTDIR)$(PREFIX)"/share/man/man1/ravelin*.1.gz
	rm -f "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/ravelin"
	rm -f "$(DESTDIR)$(PREFIX)/share/zsh/vendor-completions/_ravelin"
	rm -f "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/ravelin.fish"
	rm -f "$(DESTDIR)/etc/systemd/system/ravelin.service" "$(DESTDIR)$(PREFIX)/lib/systemd/system/ravelin.service"
	rm -f "$(DESTDIR)/etc/udev/rules.d/65-ravelin.rules" "$(DESTDIR)$(PREFIX)/lib/udev/rules.d/65-ravelin.rules"
	rm -f "$(DESTDIR)$(PREFIX)/share/doc/ravelin/examples/mail"
	-rmdir "$(DESTDIR)$(PREFIX)/share/doc/ravelin/examples" "$(DESTDIR)$(PREFIX)/share/doc/ravelin" 2>/dev/null
	-rmdir "$(DESTDIR)/etc/ravelin/hooks.d" "$(DESTDIR)/etc/ravelin" 2>/dev/null

# A Debian package in target/deb.
deb:
	$(CARGO) build --release --locked -p ravelin $(WITH)
	packaging/no-seeded-faults $(RELEASE)
	packaging/deb $(RELEASE) target/deb

clean:
	$(CARGO) clean
