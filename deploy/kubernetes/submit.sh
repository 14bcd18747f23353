#!/bin/sh
# The same in Spark's cluster mode: spark-submit makes the driver's pod, and ends; nobody starts it again.
#
#   API=https://my-cluster:6443 BUCKET=my-bucket deploy/kubernetes/submit.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)

exec spark-submit \
    --master "k8s://$API" --deploy-mode cluster --name word-count \
    --conf spark.kubernetes.namespace=meander \
    --conf spark.kubernetes.container.image="${IMAGE:-meander-app:1}" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=meander-driver \
    --conf spark.kubernetes.authenticate.executor.serviceAccountName=meander-executor \
    --conf spark.kubernetes.driver.label.app=meander \
    --conf spark.kubernetes.executor.podTemplateFile="$here/executor.yaml" \
    --conf spark.kubernetes.driverEnv.CHECKPOINT="s3://$BUCKET/word-count/operator" \
    --conf spark.kubernetes.driverEnv.QUERY_CHECKPOINT="s3a://$BUCKET/word-count/query" \
    --conf spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID=meander-store:AWS_ACCESS_KEY_ID \
    --conf spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY=meander-store:AWS_SECRET_ACCESS_KEY \
    --conf spark.executor.instances=3 --conf spark.executor.cores=4 \
    --conf spark.executor.memory=2g --conf spark.executor.memoryOverhead=6g \
    --conf spark.python.daemon.module=meander.spark.cluster.daemon \
    --conf spark.authenticate=true --conf spark.network.crypto.enabled=true \
    --conf spark.io.encryption.enabled=true \
    --conf spark.decommission.enabled=true \
    local:///opt/app/app.py
