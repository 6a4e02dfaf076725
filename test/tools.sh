#!/bin/sh
# Lists the programs that the tests need and this machine lacks, and installs their Debian packages if it runs as root, unless TOOLS=no.
# Tests whose programs are missing are skipped with a message.
set -u

missing= packages=
# need WHAT PACKAGES COMMAND...: the tests of WHAT need PACKAGES, which are installed if COMMAND succeeds.
need() {
	what=$1 from=$2
	shift 2
	"$@" >/dev/null 2>&1 && return
	missing="$missing${missing:+, }$what"
	packages="$packages${packages:+ }$from"
}
postgres() { command -v postgres || ls /usr/lib/postgresql/*/bin/postgres; }
mariadb() { command -v mariadbd && command -v my_print_defaults; }

find_missing() {
	missing= packages=
	need "failing disks" strace command -v strace
	need "cut networks" iproute2 command -v ip
	need "the web UI" chromium command -v chromium
	need "the outbox over PostgreSQL" postgresql postgres
	need "the outbox over MariaDB" "mariadb-server-core mariadb-client-core" mariadb
	need "Celery and boto3 over SQS" "python3-boto3 python3-celery python3-pycurl" /usr/bin/python3 -c "import boto3, celery, pycurl"
	need "the AWS CLI over SQS" awscli command -v aws
	need "Perl over SQS" libamazon-sqs-simple-perl perl -MAmazon::SQS::Simple -e 1
	need "PHP over SQS" "php-cli php-async-aws-sqs" php -r "exit(file_exists('/usr/share/php/AsyncAws/Sqs/autoload.php') ? 0 : 1);"
	need "the Python SDK" "python3-grpcio python3-protobuf python3-pytest python3-cryptography mypy python3-build python3-wheel" \
		sh -c "command -v mypy && { python3 -c 'import google.protobuf, grpc, pytest, cryptography' || /usr/bin/python3 -c 'import google.protobuf, grpc, pytest, cryptography'; }"
	need "workers in shell and Ruby" "curl jq ruby" sh -c "command -v curl && command -v jq && command -v ruby"
	need "the TypeScript SDK" "nodejs npm" command -v npm
}

find_missing
if [ -z "$packages" ]; then
	echo "make test: all programs that the tests need are installed. Missing npm packages and Go modules are downloaded"
	exit
fi
if [ "${TOOLS:-}" = no ]; then
	echo "make test: TOOLS=no, so nothing is installed, and these tests are skipped: $missing"
	exit
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "make test: programs can only be installed by root on Debian, so these tests are skipped: $missing"
	exit
fi
echo "make test: installing Debian packages for the tests of $missing (TOOLS=no skips them): $packages"
# RUNLEVEL=1 keeps packages from starting servers of their own.
{ apt-get update -qq && RUNLEVEL=1 apt-get install -qq -y --no-install-recommends $packages; } >/dev/null 2>&1
find_missing
[ -z "$missing" ] || echo "make test: could not be installed, so these tests are skipped: $missing"
