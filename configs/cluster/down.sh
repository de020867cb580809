#!/usr/bin/env bash
# Ends a cluster of machines reached by SSH: `ray down`, then what that leaves. Ray stops on the head
# alone: workers run on for a minute and their agents for good, and the head keeps a copy of your
# private key. Exit code 1: a machine was not reached; it is named, and the others are done.
# Usage, where you called `ray up` and with ray on the PATH: configs/cluster/down.sh CLUSTER_FILE
set -euo pipefail
file=${1:?usage: configs/cluster/down.sh CLUSTER_FILE}
ray=$(command -v ray) || { echo "down: ray is not on the PATH: . .venv/bin/activate" >&2; exit 1; }

machines=$("$(dirname "$ray")/python" - "$file" <<'READ'
import os, sys, yaml
cluster = yaml.safe_load(open(sys.argv[1]))
provider, auth = cluster["provider"], cluster["auth"]
if provider["type"] != "local":
    sys.exit(f"down: {sys.argv[1]} is a cluster of {provider['type']}: ray down ends it whole")
key = os.path.expanduser(auth["ssh_private_key"])
print(auth["ssh_user"], key, provider["head_ip"], *provider["worker_ips"], sep="\n")
READ
)
{ read -r user; read -r key; read -r head; mapfile -t workers; } <<<"$machines"

# Host keys are not asked for, as by `ray up`: the machines are those of its file.
on() {
  ssh -tt -i "$key" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 -o LogLevel=ERROR \
    -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$user@$1" "$2" </dev/null ||
    { echo "down: $1: not ended; see above, and look there yourself" >&2; return 1; }
}
# As Ray calls its own commands: ray's place is in ~/.bashrc, which says it to an interactive bash.
stop="bash --login -c -i 'source ~/.bashrc; timeout 60 ray stop --force'"

# Where the head does not find `ray`, this can go on for ever.
timeout 120 ray down -y "$file" || echo "down: ray down failed; going on without it" >&2
failed=0
# The head first: its autoscaler would start the workers again.
on "$head" "$stop; code=\$?; rm -f ~/ray_bootstrap_key.pem ~/ray_bootstrap_config.yaml; exit \$code" ||
  failed=1
ending=()
for worker in "${workers[@]}"; do
  on "$worker" "$stop" &
  ending+=($!)
done
for worker in "${ending[@]}"; do wait "$worker" || failed=1; done
exit $failed
