#!/bin/sh
# kill_resume.sh BIRKHOFF [KILLS]: kills a run with SIGKILL at random instants, saving included, resumes it each time,
# and compares what it ends with, bit for bit, with a run that nobody stopped. Dropout is on.
set -eu
birkhoff=$1
kills=${2:-50}
steps=$((240 * kills)) # about what a run does between two kills, on one core
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_WAIT_POLICY=passive

i=0
while [ "$i" -lt 400 ]; do
    echo "line $i of a text that a small model learns a little of"
    i=$((i + 1))
done >text
cat >run.yaml <<YAML
num_layers: 1
hidden_size: 32
num_attention_heads: 2
ffn_hidden_size: 64
seq_length: 16
vocab_size: 257
make_vocab_size_divisible_by: 1
position_embedding_type: rope
enable_mhc_connections: true
mhc_num_residual_streams: 2
hidden_dropout: 0.1
attention_dropout: 0.1
data_path: text
micro_batch_size: 2
global_batch_size: 4
train_iters: $steps
lr: 0.003
lr_decay_style: cosine
log_interval: 7
eval_interval: 50
eval_iters: 2
save_interval: 5
save_keep: 2
YAML

"$birkhoff" train --config run.yaml --save whole >whole.txt
lines() { grep -E "^ +[0-9]+ " "$1" | awk '{ print $1, $2, $3 ($4 ? " " $4 : "") }'; }

# Seconds between kills: from a fixed sequence, so that a failure can be repeated as far as timing allows.
done=0
n=0
seed=1
while [ "$done" -eq 0 ]; do
    load=
    [ -e stopped/latest_checkpointed_iteration.txt ] && load='--load stopped'
    # shellcheck disable=SC2086 # two words, or none
    "$birkhoff" train --config run.yaml --save stopped $load >part.txt 2>err.txt &
    pid=$!
    if [ "$n" -lt "$kills" ]; then
        seed=$(((seed * 1103515245 + 12345) % 2147483648))
        sleep "$(awk "BEGIN { print 0.05 + 0.9 * $seed / 2147483648 }")"
        kill -9 "$pid" 2>/dev/null || true
    fi
    status=0
    wait "$pid" 2>/dev/null || status=$?
    case $status in
    0) done=1 ;;
    137) n=$((n + 1)) ;;
    *)
        echo "kill_resume: after $n kills the run failed with exit status $status:"
        cat err.txt
        exit 1
        ;;
    esac
done
last=$(printf "iter_%07d" "$steps")
cmp "whole/$last/model.safetensors" "stopped/$last/model.safetensors"
lines whole.txt >whole.lines
lines part.txt | while read -r line; do
    grep -qxF "$line" whole.lines || {
        echo "kill_resume: the line '$line' is not one of the unbroken run"
        exit 1
    }
done
echo "kill_resume: $n kills, the same bits and the same lines as without"
[ "$n" -ge 1 ] || { echo "kill_resume: the run was over before the first kill"; exit 1; }
